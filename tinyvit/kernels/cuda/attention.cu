// The softmax of attention's scores and its gradient: a warp has a row of `columns` numbers. What is written may take the
// place of what is read.
//
// A bias is float; the entry for the score of `column` in query `row` of a head of a sample lies at these multiples of its
// strides `of_sample`, `of_head`, `of_query` and `of_column`. A stride is 0 along what the bias is broadcast over.

constexpr float LOWEST = -3.402823466e+38f;  // and not −∞, as −∞ − (−∞) is NaN

__device__ inline long long row_of_warp() { return ((long long)blockIdx.x * blockDim.x + threadIdx.x) / 32; }

// Scores in float become probabilities in T: exp(scores + bias − m) / Σ exp(scores + bias − m) with the row's maximum m;
// zeros in a row that is −∞ throughout. A bfloat16 can't tell 8 from 8.03, which as scores are 3 % apart after exp; so
// scores are rounded only afterwards. Rows start `stride` numbers apart.
extern "C" __global__ void __launch_bounds__(256) attention_probs(
    const float *scores, T *probs, const float *bias, long long of_sample, long long of_head, long long of_query,
    long long of_column, long long heads, long long queries, long long rows, long long columns, long long stride
) {
    long long row = row_of_warp();
    if (row >= rows) return;
    scores += row * stride;
    probs += row * stride;
    if (bias) bias += row / queries / heads * of_sample + row / queries % heads * of_head + row % queries * of_query;
    float largest = LOWEST, total = 0.0f;
    for (long long i = threadIdx.x % 32; i < columns; i += 32) {  // each thread's own maximum and sum, in one pass
        float score = bias ? scores[i] + bias[i * of_column] : scores[i], before = largest;
        largest = fmaxf(largest, score);
        total = total * expf(before - largest) + expf(score - largest);
    }
    float row_largest = warp_max(largest);
    float row_total = warp_sum(total * expf(largest - row_largest));
    float inverse = row_total == 0.0f ? 0.0f : 1.0f / row_total;
    for (long long i = threadIdx.x % 32; i < columns; i += 32) {
        float score = bias ? scores[i] + bias[i * of_column] : scores[i];
        store(probs + i, expf(score - row_largest) * inverse);
    }
}

// dprobs become the gradients of the scores, probs (dprobs − Σ dprobs probs). Rows of either start a stride apart.
extern "C" __global__ void __launch_bounds__(256) attention_dscores(
    T *dprobs, const T *probs, long long rows, long long columns, long long stride, long long probs_stride
) {
    long long row = row_of_warp();
    if (row >= rows) return;
    dprobs += row * stride;
    probs += row * probs_stride;
    float dot = 0.0f;
    for (long long i = threadIdx.x % 32; i < columns; i += 32) dot += to_float(dprobs[i]) * to_float(probs[i]);
    dot = warp_sum(dot);
    for (long long i = threadIdx.x % 32; i < columns; i += 32) {
        store(dprobs + i, to_float(probs[i]) * (to_float(dprobs[i]) - dot));
    }
}
