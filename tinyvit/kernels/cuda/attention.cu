// The softmax of attention's scores, with a bias where there is one, and rounded where the numbers that follow are.
//
// A bias is float; the entry for the score of `column` in query `row` of a head of a sample lies at these multiples of its
// strides `of_sample`, `of_head`, `of_query` and `of_column`. A stride is 0 along what the bias is broadcast over.

constexpr int EACH = 4;                      // numbers that a thread loads at once
constexpr float LOWEST = -3.402823466e+38f;  // and not −∞, as −∞ − (−∞) is NaN

// Scores in float become probabilities in T: exp(scores + bias − m) / Σ exp(scores + bias − m) with the row's maximum m;
// zeros in a row that is −∞ throughout. A bfloat16 can't tell 8 from 8.03, which as scores are 3 % apart after exp; so
// scores are rounded only afterwards.
//
// A warp has a row of `columns` numbers, and memory up to the next pack of four after them; rows start `stride` apart.
extern "C" __global__ void __launch_bounds__(256) attention_probs(
    const float *scores, T *probs, const float *bias, long long of_sample, long long of_head, long long of_query,
    long long of_column, long long heads, long long queries, long long rows, long long columns, long long stride
) {
    long long row = ((long long)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (row >= rows) return;
    scores += row * stride;
    probs += row * stride;
    if (bias) bias += row / queries / heads * of_sample + row / queries % heads * of_head + row % queries * of_query;
    long long start = threadIdx.x % 32 * EACH;
    float largest = LOWEST, total = 0.0f, numbers[EACH];
    for (long long i = start; i < columns; i += 32 * EACH) {  // each thread's own maximum and sum, in one pass
        load_pack<EACH>(numbers, scores + i);
        float before = largest;
        for (int j = 0; j < EACH && i + j < columns; j++) {
            numbers[j] += bias ? bias[(i + j) * of_column] : 0.0f;
            largest = fmaxf(largest, numbers[j]);
        }
        total *= expf(before - largest);
        for (int j = 0; j < EACH; j++) total += i + j < columns ? expf(numbers[j] - largest) : 0.0f;
    }
    float row_largest = warp_max(largest);
    float row_total = warp_sum(total * expf(largest - row_largest));
    float inverse = row_total == 0.0f ? 0.0f : 1.0f / row_total;
    for (long long i = start; i < columns; i += 32 * EACH) {
        load_pack<EACH>(numbers, scores + i);
        for (int j = 0; j < EACH; j++) {
            bool inside = i + j < columns;
            float score = inside && bias ? numbers[j] + bias[(i + j) * of_column] : numbers[j];
            numbers[j] = inside ? expf(score - row_largest) * inverse : 0.0f;
        }
        store_pack<EACH>(probs + i, numbers);
    }
}
