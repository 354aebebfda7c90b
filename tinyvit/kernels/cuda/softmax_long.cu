// Softmax of long rows, a block a row, which is read again for each step. As in softmax.cu the result may take the place
// of what is read: a thread writes where it alone has read, after its last look.

constexpr int BLOCK = 256;

extern "C" __global__ void __launch_bounds__(256) softmax_long_forward(
    const T *x, T *probs, float scale, long long rows, long long N, long long x_stride, long long probs_stride
) {
    x += blockIdx.x * x_stride;
    probs += blockIdx.x * probs_stride;
    float numbers[PACK], largest = -infinity(), total = 0.0f;
    for (long long i = threadIdx.x * PACK; i < N; i += BLOCK * PACK) {
        load_pack<PACK>(numbers, x + i);
        for (int j = 0; j < PACK; j++) largest = i + j < N ? fmaxf(largest, numbers[j] * scale) : largest;
    }
    largest = block_max(largest);
    for (long long i = threadIdx.x * PACK; i < N; i += BLOCK * PACK) {
        load_pack<PACK>(numbers, x + i);
        for (int j = 0; j < PACK; j++) total += i + j < N ? expf(numbers[j] * scale - largest) : 0.0f;
    }
    float share = 1.0f / block_sum(total);
    for (long long i = threadIdx.x * PACK; i < N; i += BLOCK * PACK) {
        load_pack<PACK>(numbers, x + i);
        for (int j = 0; j < PACK; j++) numbers[j] = i + j < N ? expf(numbers[j] * scale - largest) * share : 0.0f;
        store_pack<PACK>(probs + i, numbers);
    }
}

extern "C" __global__ void __launch_bounds__(256) softmax_long_backward(
    const T *dprobs, const T *probs, T *dx, float scale, long long rows, long long N, long long dprobs_stride,
    long long probs_stride, long long dx_stride
) {
    dprobs += blockIdx.x * dprobs_stride;
    probs += blockIdx.x * probs_stride;
    dx += blockIdx.x * dx_stride;
    float dp[PACK], p[PACK], along = 0.0f;
    for (long long i = threadIdx.x * PACK; i < N; i += BLOCK * PACK) {
        load_pack<PACK>(dp, dprobs + i);
        load_pack<PACK>(p, probs + i);
        for (int j = 0; j < PACK; j++) along += i + j < N ? dp[j] * p[j] : 0.0f;
    }
    along = block_sum(along);
    for (long long i = threadIdx.x * PACK; i < N; i += BLOCK * PACK) {
        load_pack<PACK>(dp, dprobs + i);
        load_pack<PACK>(p, probs + i);
        for (int j = 0; j < PACK; j++) dp[j] = i + j < N ? scale * p[j] * (dp[j] - along) : 0.0f;
        store_pack<PACK>(dx + i, dp);
    }
}

