// Scores in float become probabilities in T: probs = exp(scores − m) / Σ exp(scores − m) with the row's largest score m.
// A bfloat16 can't tell 8 from 8.03, which as scores are 3 % apart after exp; so scores are rounded only afterwards.
//
// A warp has a row of `columns` numbers, and memory up to the next pack of four behind them; rows start `stride` apart.

constexpr int EACH = 4;                      // numbers that a thread loads at once
constexpr float LOWEST = -3.402823466e+38f;  // and not −∞, as −∞ − (−∞) is no number

extern "C" __global__ void __launch_bounds__(256) attention_probs(
    const float *scores, T *probs, long long rows, long long columns, long long stride
) {
    long long row = ((long long)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (row >= rows) return;
    scores += row * stride;
    probs += row * stride;
    long long start = threadIdx.x % 32 * EACH;
    float largest = LOWEST, total = 0.0f, numbers[EACH];
    for (long long i = start; i < columns; i += 32 * EACH) {  // each thread's own largest score and sum, in one look
        load_pack<EACH>(numbers, scores + i);
        float before = largest;
        for (int j = 0; j < EACH; j++) largest = i + j < columns ? fmaxf(largest, numbers[j]) : largest;
        total *= expf(before - largest);
        for (int j = 0; j < EACH; j++) total += i + j < columns ? expf(numbers[j] - largest) : 0.0f;
    }
    float most = warp_max(largest);
    float share = 1.0f / warp_sum(total * expf(largest - most));
    for (long long i = start; i < columns; i += 32 * EACH) {
        load_pack<EACH>(numbers, scores + i);
        for (int j = 0; j < EACH; j++) numbers[j] = i + j < columns ? expf(numbers[j] - most) * share : 0.0f;
        store_pack<EACH>(probs + i, numbers);
    }
}
