// y = x + positions, the same for each sample. blockIdx.y is the sample, or the first of several that lie gridDim.y
// apart, and blockIdx.x the place within one.

extern "C" __global__ void add_positions(
    const T *x, const float *positions, T *y, long long samples, long long count
) {
    long long c = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * PACK;
    if (c >= count) return;
    float here[PACK];
    load_pack<PACK>(here, positions + c);
    for (long long b = blockIdx.y; b < samples; b += gridDim.y) {
        float numbers[PACK];
        load_pack<PACK>(numbers, x + b * count + c);
        for (int j = 0; j < PACK; j++) numbers[j] += here[j];
        store_pack<PACK>(y + b * count + c, numbers);
    }
}
