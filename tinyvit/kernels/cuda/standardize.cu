// Standardised filters, float32: a block a filter of `length` numbers.

constexpr int BLOCK = 256;

// standardized = (w − μ) · scale with scale = 1 / √(σ² + ε), or 1 / (σ + ε) if σ is to be written to `sigma`.
extern "C" __global__ void __launch_bounds__(256) standardize_forward(
    const float *weight, float *standardized, float *scale, float *sigma, float eps, long long length
) {
    weight += blockIdx.x * length;
    standardized += blockIdx.x * length;
    float total = 0.0f, rest = 0.0f, squares = 0.0f;
    for (long long i = threadIdx.x; i < length; i += BLOCK) total += weight[i];
    float mean = block_sum(total) / length;
    for (long long i = threadIdx.x; i < length; i += BLOCK) rest += weight[i] - mean;
    rest = block_sum(rest) / length;  // what the rounding of the mean has left
    for (long long i = threadIdx.x; i < length; i += BLOCK) {
        float apart = weight[i] - mean - rest;
        squares += apart * apart;
    }
    float variance = block_sum(squares) / length, deviation = sqrtf(variance);
    float factor = sigma ? 1.0f / (deviation + eps) : 1.0f / sqrtf(variance + eps);
    for (long long i = threadIdx.x; i < length; i += BLOCK) standardized[i] = (weight[i] - mean - rest) * factor;
    if (threadIdx.x) return;
    scale[blockIdx.x] = factor;
    if (sigma) sigma[blockIdx.x] = deviation;
}

// dweight = scale (dŵ − mean(dŵ) − ŵ mean(dŵ ŵ)), the last mean divided by σ · scale if there is a σ that isn't 0. With
// `add` it is added to what is there.
extern "C" __global__ void __launch_bounds__(256) standardize_backward(
    const float *dy, const float *standardized, const float *scale, const float *sigma, float *dweight, long long length,
    long long add
) {
    dy += blockIdx.x * length;
    standardized += blockIdx.x * length;
    dweight += blockIdx.x * length;
    float total = 0.0f, along = 0.0f, factor = scale[blockIdx.x];
    for (long long i = threadIdx.x; i < length; i += BLOCK) {
        total += dy[i];
        along += dy[i] * standardized[i];
    }
    float mean = block_sum(total) / length;
    along = block_sum(along) / length;
    if (sigma && sigma[blockIdx.x] != 0.0f) along /= sigma[blockIdx.x] * factor;
    for (long long i = threadIdx.x; i < length; i += BLOCK) {
        float gradient = factor * (dy[i] - mean - standardized[i] * along);
        dweight[i] = add ? dweight[i] + gradient : gradient;
    }
}
