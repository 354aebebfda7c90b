// The loss of a classifier. A warp has a row.

constexpr int SPAN = 32;

// The smoothed target: one-hot labels, or given probabilities. A label out of range counts as none.
__device__ inline float target(
    const long long *labels, const float *targets, float smoothing, long long row, long long k, long long K
) {
    float t = labels ? (labels[row] == k ? 1.0f : 0.0f) : targets[row * K + k];
    return t * (1.0f - smoothing) + smoothing / K;
}

// losses (B,): −Σ t log p of each row as part of the mean, and the probabilities (B, K).
extern "C" __global__ void __launch_bounds__(256) cross_entropy_forward(
    const T *logits, const long long *labels, const float *targets, float smoothing, float *probs, float *losses,
    long long B, long long K
) {
    long long row = ((long long)blockIdx.x * blockDim.x + threadIdx.x) / SPAN, first = threadIdx.x % SPAN;
    if (row >= B) return;
    logits += row * K;
    float largest = -infinity(), total = 0.0f, loss = 0.0f;
    for (long long k = first; k < K; k += SPAN) largest = fmaxf(largest, to_float(logits[k]));
    largest = warp_max(largest);
    for (long long k = first; k < K; k += SPAN) total += expf(to_float(logits[k]) - largest);
    total = warp_sum(total);
    float log_sum = logf(total), share = 1.0f / total;
    for (long long k = first; k < K; k += SPAN) {
        float x = to_float(logits[k]), t = target(labels, targets, smoothing, row, k, K);
        // In this order, as log Σ may be too small to be added to the largest logit. Where a target is 0 nothing is lost,
        // however improbable the class.
        if (t != 0.0f) loss += t * (log_sum + (largest - x));
        probs[row * K + k] = expf(x - largest) * share;
    }
    loss = warp_sum(loss);
    if (first == 0) losses[row] = loss / B;
}

// dlogits = dy (p Σ t − t) / B, with dy on the device, or `number` in its place.
extern "C" __global__ void __launch_bounds__(256) cross_entropy_backward(
    const float *probs, const long long *labels, const float *targets, float smoothing, const float *dy, float number,
    T *dlogits, long long B, long long K
) {
    long long row = ((long long)blockIdx.x * blockDim.x + threadIdx.x) / SPAN, first = threadIdx.x % SPAN;
    if (row >= B) return;
    float scale = (dy ? *dy : number) / B, total = 0.0f;
    for (long long k = first; k < K; k += SPAN) total += target(labels, targets, smoothing, row, k, K);
    total = warp_sum(total);
    for (long long k = first; k < K; k += SPAN) {
        float t = target(labels, targets, smoothing, row, k, K);
        store(dlogits + row * K + k, (probs[row * K + k] * total - t) * scale);
    }
}
