// y = x + bias, for x (rows, D) and bias (D). y may be x.
//
// Every thread stays in its columns, so that it loads its part of the bias once and divides once to find it: from one of
// its packs to the next it goes over `stride` packs, a multiple of the D / PACK packs of a row.

extern "C" __global__ void linear_add_bias(
    const T *x, const float *bias, T *y, long long packs, long long packs_of_row, long long stride
) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= stride) return;
    const float *here = bias + i % packs_of_row * PACK;
    float add[PACK], numbers[PACK];
    for (int j = 0; j < PACK; j++) add[j] = here[j];
    for (; i < packs; i += stride) {
        load_pack<PACK>(numbers, x + i * PACK);
        for (int j = 0; j < PACK; j++) numbers[j] += add[j];
        store_pack<PACK>(y + i * PACK, numbers);
    }
}
