// The loss of a classifier.
//
// SPAN  threads that share a row: 32, or all 256 of a block

constexpr int BLOCK = 256;

__device__ inline float row_sum(float x) { return SPAN == 32 ? warp_sum(x) : block_sum(x); }
__device__ inline float row_max(float x) { return SPAN == 32 ? warp_max(x) : block_max(x); }

// The smoothed target: one-hot labels, or given probabilities. A label out of range counts as none.
__device__ inline float target(
    const long long *labels, const float *targets, float smoothing, long long row, long long k, long long K
) {
    float t = labels ? (labels[row] == k ? 1.0f : 0.0f) : targets[row * K + k];
    return t * (1.0f - smoothing) + smoothing / K;
}

// losses (B,): −Σ t log p of each row, and the probabilities (B, K).
extern "C" __global__ void __launch_bounds__(256) cross_entropy_forward(
    const T *logits, const long long *labels, const float *targets, float smoothing, float *probs, float *losses,
    long long B, long long K
) {
    long long row = ((long long)blockIdx.x * BLOCK + threadIdx.x) / SPAN, first = threadIdx.x % SPAN;
    if (row >= B) return;  // all threads of the row
    logits += row * K;
    float largest = -infinity(), total = 0.0f, loss = 0.0f;
    for (long long k = first; k < K; k += SPAN) largest = fmaxf(largest, to_float(logits[k]));
    largest = row_max(largest);
    for (long long k = first; k < K; k += SPAN) total += expf(to_float(logits[k]) - largest);
    total = row_sum(total);
    float log_sum = logf(total), share = 1.0f / total;
    for (long long k = first; k < K; k += SPAN) {
        float x = to_float(logits[k]), t = target(labels, targets, smoothing, row, k, K);
        // In this order, as log Σ may be too small to be added to the largest logit. Where a target is 0 nothing is lost,
        // however improbable the class.
        if (t != 0.0f) loss += t * (log_sum + (largest - x));
        probs[row * K + k] = expf(x - largest) * share;
    }
    loss = row_sum(loss);
    if (first == 0) losses[row] = loss;
}

// dlogits = dy (p Σ t − t) / B, with dy on the device, or `number` in its place.
extern "C" __global__ void __launch_bounds__(256) cross_entropy_backward(
    const float *probs, const long long *labels, const float *targets, float smoothing, const float *dy, float number,
    T *dlogits, long long B, long long K
) {
    long long row = ((long long)blockIdx.x * BLOCK + threadIdx.x) / SPAN, first = threadIdx.x % SPAN;
    if (row >= B) return;
    float scale = (dy ? *dy : number) / B, total = 0.0f;
    for (long long k = first; k < K; k += SPAN) total += target(labels, targets, smoothing, row, k, K);
    total = row_sum(total);
    for (long long k = first; k < K; k += SPAN) {
        float t = target(labels, targets, smoothing, row, k, K);
        store(dlogits + row * K + k, (probs[row * K + k] * total - t) * scale);
    }
}
