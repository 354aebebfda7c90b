// Sums of squares and moving averages of the flat arrays, all float32.

// Block b adds up the squares of every gridDim.x-th stretch of blockDim.x packs; the order depends on the size alone.
extern "C" __global__ void sum_squares(const float *x, float *sums, long long size) {
    float sum = 0.0f;
    long long step = (long long)gridDim.x * blockDim.x * PACK;
    for (long long i = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * PACK; i < size; i += step) {
        float numbers[PACK];
        load_pack<PACK>(numbers, x + i);
        for (int j = 0; j < PACK; j++) sum += numbers[j] * numbers[j];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// One block: the sum of the blocks' sums.
extern "C" __global__ void sum_of_sums(const float *sums, float *total, long long count) {
    float sum = 0.0f;
    for (long long i = threadIdx.x; i < count; i += blockDim.x) sum += sums[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) *total = sum;
}

// average += share · (x − average); the share is *on_device unless that is a null pointer.
extern "C" __global__ void move_average(
    float *average, const float *x, long long size, const float *on_device, float share
) {
    long long i = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * PACK;
    if (i >= size) return;
    if (on_device) share = *on_device;
    float e[PACK], numbers[PACK];
    load_pack<PACK>(e, average + i);
    load_pack<PACK>(numbers, x + i);
    for (int j = 0; j < PACK; j++) e[j] += share * (numbers[j] - e[j]);
    store_pack<PACK>(average + i, e);
}
