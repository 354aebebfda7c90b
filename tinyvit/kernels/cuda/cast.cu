// y = x in another number format, rounded to nearest, ties to even.

extern "C" __global__ void cast(const FROM *x, TO *y, long long size) {
    long long i = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * PACK;
    if (i >= size) return;
    float numbers[PACK];
    load_pack<PACK>(numbers, x + i);
    store_pack<PACK>(y + i, numbers);
}
