// The last stage of many sums over rows, each added to its part of the flat array x, a block for 32 columns of one of them.

constexpr int WARPS = 8;

// table (parts, 4): the address of an array of rows, where in x its sums go, its rows and columns. Block x has its x-th 32
// columns, if there are so many, of part y; warp w takes every eighth row.
extern "C" __global__ void __launch_bounds__(256) sums_together(float *x, const long long *table) {
    __shared__ float of_warp[WARPS][32];
    const long long *part = table + 4 * blockIdx.y;
    const float *array = reinterpret_cast<const float *>(part[0]);
    long long rows = part[2], columns = part[3], column = blockIdx.x * 32 + threadIdx.x % 32;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float sum = 0.0f;
    if (column < columns) {
        #pragma unroll 8
        for (long long row = warp; row < rows; row += WARPS) sum += array[row * columns + column];
    }
    of_warp[warp][lane] = sum;
    __syncthreads();
    if (warp || column >= columns) return;
    sum = 0.0f;
    for (int w = 0; w < WARPS; w++) sum += of_warp[w][lane];
    x[part[1] + column] += sum;
}
