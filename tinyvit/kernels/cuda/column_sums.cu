// Sums over the rows of one or two matrices, in two stages: blocks sum up some rows each, then one block their sums.
// The order of additions depends on the number of rows alone.

constexpr int WARPS = 8;

// Block y sums up its `share` of the rows. Their sums become row y of `first`, or of `second` for the other matrix; with
// `add`, of a single block y, they are added to it instead. A null pointer leaves that matrix out. A thread has PACK
// columns, and warp w takes every eighth row.
extern "C" __global__ void column_sums(
    const T *matrices, float *first, float *second, long long rows, long long columns, long long share, long long add
) {
    float *out = blockIdx.z ? second : first;
    if (!out) return;
    const T *matrix = matrices + blockIdx.z * rows * columns;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    long long column = ((long long)blockIdx.x * 32 + lane) * PACK;
    long long begin = blockIdx.y * share, end = min(begin + share, rows);
    float sums[PACK] = {};
    if (column < columns) {
        #pragma unroll 4
        for (long long row = begin + warp; row < end; row += WARPS) {
            float numbers[PACK];
            load_pack<PACK>(numbers, matrix + row * columns + column);
            for (int j = 0; j < PACK; j++) sums[j] += numbers[j];
        }
    }
    store_column_sums(add ? out : out + blockIdx.y * columns, sums, columns, add);
}
