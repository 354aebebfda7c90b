// The end of a residual branch that lacks its bias: y = x + (branch + offset) · factor, the factor that of drop path. Every
// number has the bits that layernorm.cu computes where a norm follows.

// Every thread stays in its columns, from pack to pack as in linear.cu: `stride` is a multiple of a row's packs. A sample
// has `each` rows.
extern "C" __global__ void add_branch(
    const T *x, const T *branch, const float *offset, T *y, unsigned long long key, const unsigned long long *key_at,
    float keep, float scale, long long each, long long packs, long long packs_of_row, long long stride
) {
    if (key_at) key = *key_at;
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= stride) return;
    long long row = i / packs_of_row;
    float bias[PACK], numbers[PACK], added[PACK];
    load_pack<PACK>(bias, offset + i % packs_of_row * PACK);
    for (; i < packs; i += stride, row += stride / packs_of_row) {
        load_pack<PACK>(numbers, x + i * PACK);
        load_pack<PACK>(added, branch + i * PACK);
        float factor = factor_of_row(key, keep, scale, row, each);
        for (int j = 0; j < PACK; j++) numbers[j] += __fmul_rn(added[j] + bias[j], factor);
        store_pack<PACK>(y + i * PACK, numbers);
    }
}

// dbranch = dy · factor, unless that is null, and its sums over some rows for each block, row y of `partial`, unless that
// is null. A thread has PACK columns, and a warp the rows that it has in layernorm_backward.
extern "C" __global__ void __launch_bounds__(256) add_branch_backward(
    const T *dy, T *dbranch, float *partial, unsigned long long key, const unsigned long long *key_at, float keep,
    float scale, long long each, long long rows, long long columns
) {
    if (key_at) key = *key_at;
    long long column = ((long long)blockIdx.x * 32 + threadIdx.x % 32) * PACK;
    float sums[PACK] = {}, numbers[PACK];
    if (column < columns) {
        #pragma unroll 4
        for (long long row = (long long)blockIdx.y * 8 + threadIdx.x / 32; row < rows; row += gridDim.y * 8) {
            load_pack<PACK>(numbers, dy + row * columns + column);
            float factor = factor_of_row(key, keep, scale, row, each);
            for (int j = 0; j < PACK; j++) {
                numbers[j] = __fmul_rn(numbers[j], factor);
                sums[j] += numbers[j];
            }
            if (dbranch) store_pack<PACK>(dbranch + row * columns + column, numbers);
        }
    }
    if (partial) store_column_sums(partial + blockIdx.y * columns, sums, columns, false);
}
