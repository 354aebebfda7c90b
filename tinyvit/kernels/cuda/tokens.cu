// Tokens beside the patches, class token and registers, and what is read off the tokens at the end. In all of these
// blockIdx.y is the sample, or the first of several that lie gridDim.y apart, and blockIdx.x the place within one.

// y = the token, then x, for each sample.
extern "C" __global__ void prepend_token(
    const T *x, const float *token, T *y, long long samples, long long tokens, long long width
) {
    long long c = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * PACK;
    if (c >= (tokens + 1) * width) return;
    for (long long b = blockIdx.y; b < samples; b += gridDim.y) {
        float numbers[PACK];
        if (c < width) load_pack<PACK>(numbers, token + c);
        else load_pack<PACK>(numbers, x + b * tokens * width + c - width);
        store_pack<PACK>(y + b * (tokens + 1) * width + c, numbers);
    }
}

// y = `first` numbers of each sample of x, the `count` numbers of the tokens, then the rest; a sample of x has `size`.
extern "C" __global__ void insert_tokens(
    const T *x, const float *token, T *y, long long samples, long long size, long long first, long long count
) {
    long long c = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * PACK;
    if (c >= size + count) return;
    for (long long b = blockIdx.y; b < samples; b += gridDim.y) {
        float numbers[PACK];
        if (c >= first && c < first + count) load_pack<PACK>(numbers, token + c - first);
        else load_pack<PACK>(numbers, x + b * size + (c < first ? c : c - count));
        store_pack<PACK>(y + b * (size + count) + c, numbers);
    }
}

// y = each sample of x without the `count` numbers from `first` on; a sample of y has `size`.
extern "C" __global__ void remove_tokens(
    const T *x, T *y, long long samples, long long size, long long first, long long count
) {
    long long c = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * PACK;
    if (c >= size) return;
    for (long long b = blockIdx.y; b < samples; b += gridDim.y) {
        float numbers[PACK];
        load_pack<PACK>(numbers, x + b * (size + count) + (c < first ? c : c + count));
        store_pack<PACK>(y + b * size + c, numbers);
    }
}

// y = `count` numbers of each sample of x from number `first` on, where a sample of x is `stride` numbers long.
extern "C" __global__ void copy_tokens(
    const T *x, T *y, long long samples, long long stride, long long first, long long count
) {
    long long c = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * PACK;
    if (c >= count) return;
    for (long long b = blockIdx.y; b < samples; b += gridDim.y) {
        float numbers[PACK];
        load_pack<PACK>(numbers, x + b * stride + first + c);
        store_pack<PACK>(y + b * count + c, numbers);
    }
}

// dx = scale · dy for the numbers from `first` to `last` of a sample, again for each token, and 0 for the others.
extern "C" __global__ void spread_tokens(
    const T *dy, T *dx, long long samples, long long width, long long first, long long last, long long count,
    float scale
) {
    long long c = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * PACK;
    if (c >= count) return;
    bool inside = c >= first && c < last;
    for (long long b = blockIdx.y; b < samples; b += gridDim.y) {
        float numbers[PACK] = {};
        if (inside) load_pack<PACK>(numbers, dy + b * width + c % width);
        for (int j = 0; j < PACK; j++) numbers[j] *= scale;
        store_pack<PACK>(dx + b * count + c, numbers);
    }
}

constexpr int WARPS = 8;

// y = scale · the sum over the tokens of each sample from token `prefix` on. A thread has PACK columns, and warp w takes
// every eighth token; the warps' sums are then added up in their order.
extern "C" __global__ void mean_tokens(
    const T *x, T *y, long long samples, long long tokens, long long prefix, long long width, float scale
) {
    __shared__ float of_warp[WARPS][32 * PACK];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    long long column = ((long long)blockIdx.x * 32 + lane) * PACK;
    for (long long b = blockIdx.y; b < samples; b += gridDim.y) {
        float sums[PACK] = {};
        if (column < width) {
            for (long long n = prefix + warp; n < tokens; n += WARPS) {
                float numbers[PACK];
                load_pack<PACK>(numbers, x + (b * tokens + n) * width + column);
                for (int j = 0; j < PACK; j++) sums[j] += numbers[j];
            }
        }
        for (int j = 0; j < PACK; j++) of_warp[warp][lane * PACK + j] = sums[j];
        __syncthreads();
        if (warp == 0 && column < width) {
            for (int j = 0; j < PACK; j++) {
                sums[j] = 0.0f;
                for (int w = 0; w < WARPS; w++) sums[j] += of_warp[w][lane * PACK + j];
                sums[j] *= scale;
            }
            store_pack<PACK>(y + b * width + column, sums);
        }
        __syncthreads();  // before the next sample's sums take their place
    }
}
