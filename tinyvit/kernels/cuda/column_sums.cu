// Sums over the rows of one or two matrices, in two stages: blocks sum up some rows each, then one block their sums.
// The order of additions depends on the number of rows alone.

constexpr int WARPS = 8;

// Block y sums up its `share` of the rows. Their sums become row y of `first`, or of `second` for the other matrix; with
// `add`, of a single block y, they are added to it instead. A null pointer leaves that matrix out. A thread has PACK
// columns, and warp w takes every eighth row.
extern "C" __global__ void column_sums(
    const T *matrices, float *first, float *second, long long rows, long long columns, long long share, long long add
) {
    __shared__ float of_warp[WARPS][32 * PACK];
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
    for (int j = 0; j < PACK; j++) of_warp[warp][lane * PACK + j] = sums[j];
    __syncthreads();
    column = (long long)blockIdx.x * 32 * PACK + threadIdx.x;
    if (threadIdx.x >= 32 * PACK || column >= columns) return;
    float sum = 0.0f;
    for (int w = 0; w < WARPS; w++) sum += of_warp[w][threadIdx.x];
    if (add) out[column] += sum;
    else out[blockIdx.y * columns + column] = sum;
}
