// Layer norm of long rows, a block a row, which is read again for each step.

constexpr int BLOCK = 256, WARPS = 8;

__device__ inline float centred(float x, float mean, float rest) { return x - mean - rest; }

// As layernorm_forward in layernorm.cu.
extern "C" __global__ void __launch_bounds__(256, 4) layernorm_long_forward(
    const T *x, const T *branch, const float *offset, unsigned long long key, const unsigned long long *key_at,
    float keep, float scale, long long each, const float *weight, const float *bias, float eps, T *sum, T *y,
    float *statistics, long long rows, long long D
) {
    if (key_at) key = *key_at;
    long long row = blockIdx.x;
    float factor = offset ? factor_of_row(key, keep, scale, row, each) : 1.0f;
    float numbers[PACK], more[PACK], total = 0.0f, rest = 0.0f, squares = 0.0f;
    for (long long i = threadIdx.x * PACK; branch && i < D; i += BLOCK * PACK) {
        load_pack<PACK>(numbers, x + row * D + i);
        load_pack<PACK>(more, branch + row * D + i);
        if (offset) {
            float bias_of_branch[PACK];
            load_pack<PACK>(bias_of_branch, offset + i);
            for (int j = 0; j < PACK; j++) more[j] = __fmul_rn(more[j] + bias_of_branch[j], factor);
        }
        for (int j = 0; j < PACK; j++) numbers[j] += more[j];
        store_pack<PACK>(sum + row * D + i, numbers);
    }
    const T *in = (branch ? sum : x) + row * D;  // a thread reads no more of the sum than it wrote itself
    for (long long i = threadIdx.x * PACK; i < D; i += BLOCK * PACK) {
        load_pack<PACK>(numbers, in + i);
        for (int j = 0; j < PACK; j++) total += numbers[j];
    }
    float mean = block_sum(total) / D;
    for (long long i = threadIdx.x * PACK; i < D; i += BLOCK * PACK) {
        load_pack<PACK>(numbers, in + i);
        for (int j = 0; j < PACK; j++) rest += numbers[j] - mean;
    }
    rest = block_sum(rest) / D;
    for (long long i = threadIdx.x * PACK; i < D; i += BLOCK * PACK) {
        load_pack<PACK>(numbers, in + i);
        for (int j = 0; j < PACK; j++) squares += centred(numbers[j], mean, rest) * centred(numbers[j], mean, rest);
    }
    float rstd = 1.0f / sqrtf(block_sum(squares) / D + eps);
    for (long long i = threadIdx.x * PACK; i < D; i += BLOCK * PACK) {
        load_pack<PACK>(numbers, in + i);
        load_pack<PACK>(more, weight + i);
        for (int j = 0; j < PACK; j++) numbers[j] = centred(numbers[j], mean, rest) * rstd * more[j];
        load_pack<PACK>(more, bias + i);
        for (int j = 0; j < PACK; j++) numbers[j] += more[j];
        store_pack<PACK>(y + row * D + i, numbers);
    }
    if (threadIdx.x == 0) {
        statistics[row] = mean;
        statistics[rows + row] = rest;
        statistics[2 * rows + row] = rstd;
    }
}

// As layernorm_backward, without the gradients of the parameters.
extern "C" __global__ void __launch_bounds__(256) layernorm_long_backward(
    const T *dy, const T *x, const float *statistics, const float *weight, const T *dsum, T *dx, long long rows,
    long long D
) {
    long long row = blockIdx.x;
    float mean = statistics[row], rest = statistics[rows + row], rstd = statistics[2 * rows + row];
    float g[PACK], xhat[PACK], w[PACK], mean_g = 0.0f, along = 0.0f;
    for (long long i = threadIdx.x * PACK; i < D; i += BLOCK * PACK) {
        load_pack<PACK>(g, dy + row * D + i);
        load_pack<PACK>(xhat, x + row * D + i);
        load_pack<PACK>(w, weight + i);
        for (int j = 0; j < PACK; j++) {
            g[j] = __fmul_rn(g[j], w[j]);
            mean_g += g[j];
            along += g[j] * centred(xhat[j], mean, rest) * rstd;
        }
    }
    mean_g = block_sum(mean_g) / D;
    along = block_sum(along) / D;
    for (long long i = threadIdx.x * PACK; i < D; i += BLOCK * PACK) {
        load_pack<PACK>(g, dy + row * D + i);
        load_pack<PACK>(xhat, x + row * D + i);
        load_pack<PACK>(w, weight + i);
        for (int j = 0; j < PACK; j++) {
            float normal = centred(xhat[j], mean, rest) * rstd;
            g[j] = (__fmul_rn(g[j], w[j]) - mean_g - normal * along) * rstd;
        }
        if (dsum) {
            load_pack<PACK>(w, dsum + row * D + i);
            for (int j = 0; j < PACK; j++) g[j] += w[j];
        }
        store_pack<PACK>(dx + row * D + i, g);
    }
}

// partial (2, blocks in y, D): Σ dy x̂ and Σ dy of `share` rows each. A thread has PACK columns, as in column_sums.cu.
extern "C" __global__ void __launch_bounds__(256) layernorm_long_columns(
    const T *dy, const T *x, const float *statistics, float *partial, long long rows, long long D, long long share
) {
    __shared__ float of_warp[2][WARPS][32 * PACK];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    long long column = ((long long)blockIdx.x * 32 + lane) * PACK;
    long long begin = blockIdx.y * share, end = min(begin + share, rows);
    float dweight[PACK] = {}, dbias[PACK] = {};
    if (column < D) {
        for (long long row = begin + warp; row < end; row += WARPS) {
            float g[PACK], numbers[PACK];
            float mean = statistics[row], rest = statistics[rows + row], rstd = statistics[2 * rows + row];
            load_pack<PACK>(g, dy + row * D + column);
            load_pack<PACK>(numbers, x + row * D + column);
            for (int j = 0; j < PACK; j++) {
                dweight[j] += g[j] * centred(numbers[j], mean, rest) * rstd;
                dbias[j] += g[j];
            }
        }
    }
    for (int j = 0; j < PACK; j++) {
        of_warp[0][warp][lane * PACK + j] = dweight[j];
        of_warp[1][warp][lane * PACK + j] = dbias[j];
    }
    __syncthreads();
    column = (long long)blockIdx.x * 32 * PACK + threadIdx.x;
    if (threadIdx.x >= 32 * PACK || column >= D) return;
    for (int which = 0; which < 2; which++) {
        float sum = 0.0f;
        for (int w = 0; w < WARPS; w++) sum += of_warp[which][w][threadIdx.x];
        partial[((long long)which * gridDim.y + blockIdx.y) * D + column] = sum;
    }
}
