// Layer norm of rows of up to SPAN · LANE numbers: a row is read once and stays in the threads' registers.
//
// SPAN  threads that share a row: 8, 16 or 32 of a warp, or all 256 of a block
// LANE  numbers that a thread holds, in packs that lie SPAN packs apart

constexpr int AT_ONCE = 256 / SPAN, PACKS = LANE / PACK;

// The column of the first number of a thread's pack.
__device__ inline int column_of(int pack) { return (pack * SPAN + threadIdx.x % SPAN) * PACK; }

__device__ inline float row_sum(float x) {
    if constexpr (SPAN == 256) return block_sum(x);
    else return warp_sum<SPAN>(x);
}

// The numbers of a row of D, and 0 after its end; of no row, if D is 0.
template <class N> __device__ inline void load_row(float (&numbers)[LANE], const N *row, int D) {
    for (int p = 0; p < PACKS; p++) {
        float pack[PACK] = {};
        if (column_of(p) < D) load_pack<PACK>(pack, row + column_of(p));
        for (int j = 0; j < PACK; j++) numbers[p * PACK + j] = pack[j];
    }
}

__device__ inline void store_row(T *row, const float (&numbers)[LANE], int D) {
    for (int p = 0; p < PACKS; p++) {
        float pack[PACK];
        for (int j = 0; j < PACK; j++) pack[j] = numbers[p * PACK + j];
        if (column_of(p) < D) store_pack<PACK>(row + column_of(p), pack);
    }
}

// x minus a number, but 0 after the end of a row.
__device__ inline void subtract(float (&numbers)[LANE], float x, int D) {
    for (int i = 0; i < LANE; i++) numbers[i] = column_of(i / PACK) < D ? numbers[i] - x : 0.0f;
}

// y = (x − μ) / √(σ² + ε) · weight + bias.
// statistics (3, rows): the mean, what its rounding has left of it, 1 / standard deviation.
extern "C" __global__ void __launch_bounds__(256) layernorm_forward(
    const T *x, const float *weight, const float *bias, float eps, T *y, float *statistics, long long rows,
    long long columns
) {
    int D = columns;
    float w[LANE], b[LANE];
    load_row(w, weight, D);
    load_row(b, bias, D);
    for (long long first = (long long)blockIdx.x * AT_ONCE; first < rows; first += gridDim.x * AT_ONCE) {
        long long row = first + threadIdx.x / SPAN;
        int width = row < rows ? D : 0;  // threads without a row go on, as sums need all of a warp
        float numbers[LANE], total = 0.0f, rest = 0.0f, squares = 0.0f;
        load_row(numbers, x + row * D, width);
        for (int i = 0; i < LANE; i++) total += numbers[i];
        float mean = row_sum(total) / D;
        subtract(numbers, mean, width);
        for (int i = 0; i < LANE; i++) rest += numbers[i];
        rest = row_sum(rest) / D;
        subtract(numbers, rest, width);
        for (int i = 0; i < LANE; i++) squares += numbers[i] * numbers[i];
        float rstd = 1.0f / sqrtf(row_sum(squares) / D + eps);
        for (int i = 0; i < LANE; i++) numbers[i] = numbers[i] * rstd * w[i] + b[i];
        store_row(y + row * D, numbers, width);
        if (threadIdx.x % SPAN || row >= rows) continue;
        statistics[row] = mean;
        statistics[rows + row] = rest;
        statistics[2 * rows + row] = rstd;
    }
}

// The sums of all rows' numbers, column by column, as one row.
__device__ inline void store_block_sums(float *row, const float (&numbers)[LANE], int D) {
    __shared__ float of_row[AT_ONCE][SPAN * LANE];
    __syncthreads();  // the sums before these may still be read
    for (int i = 0; i < LANE; i++) of_row[threadIdx.x / SPAN][column_of(i / PACK) + i % PACK] = numbers[i];
    __syncthreads();
    for (int column = threadIdx.x; column < D; column += 256) {
        float sum = 0.0f;
        for (int r = 0; r < AT_ONCE; r++) sum += of_row[r][column];
        row[column] = sum;
    }
}

// dx = rstd (g − mean(g) − x̂ mean(g x̂)) with g = dy · weight.
// partial (2, blocks, D), unless null: Σ dy x̂ and Σ dy over the rows of each block.
extern "C" __global__ void __launch_bounds__(256) layernorm_backward(
    const T *dy, const T *x, const float *statistics, const float *weight, T *dx, float *partial, long long rows,
    long long columns
) {
    int D = columns;
    float w[LANE], dweight[LANE] = {}, dbias[LANE] = {};
    load_row(w, weight, D);
    for (long long first = (long long)blockIdx.x * AT_ONCE; first < rows; first += gridDim.x * AT_ONCE) {
        long long row = first + threadIdx.x / SPAN, there = min(row, rows - 1);
        int width = row < rows ? D : 0;
        float g[LANE], xhat[LANE], mean_g = 0.0f, along = 0.0f;
        float mean = statistics[there], rest = statistics[rows + there], rstd = statistics[2 * rows + there];
        load_row(g, dy + row * D, width);
        load_row(xhat, x + row * D, width);
        for (int i = 0; i < LANE; i++) {
            xhat[i] = (xhat[i] - mean - rest) * rstd;  // beside a g of 0 after the end of a row
            dweight[i] += g[i] * xhat[i];
            dbias[i] += g[i];
            g[i] = __fmul_rn(g[i], w[i]);  // rounded, so that what is equal in a row cancels to nothing
            mean_g += g[i];
            along += g[i] * xhat[i];
        }
        mean_g = row_sum(mean_g) / D;
        along = row_sum(along) / D;
        for (int i = 0; i < LANE; i++) g[i] = (g[i] - mean_g - xhat[i] * along) * rstd;
        store_row(dx + row * D, g, width);
    }
    if (!partial) return;
    store_block_sums(partial + blockIdx.x * D, dweight, D);
    store_block_sums(partial + ((long long)gridDim.x + blockIdx.x) * D, dbias, D);
}
