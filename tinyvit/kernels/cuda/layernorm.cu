// Layer norm of rows of up to SPAN · LANE numbers: a row is read once and stays in the threads' registers.
//
// SPAN  threads that share a row: 32, or all 256 of a block
// LANE  numbers that a thread holds, in packs that lie SPAN packs apart

constexpr int AT_ONCE = 256 / SPAN, PACKS = LANE / PACK;

// The column of a thread's i-th number.
__device__ inline int column_of(int i) { return (i / PACK * SPAN + threadIdx.x % SPAN) * PACK + i % PACK; }

__device__ inline float row_sum(float x) { return SPAN == 32 ? warp_sum(x) : block_sum(x); }

// A row's numbers, and 0 after its end.
template <class N> __device__ inline void load_row(float (&numbers)[LANE], const N *row, long long D) {
    #pragma unroll
    for (int p = 0; p < PACKS; p++) {
        float pack[PACK] = {};
        if (column_of(p * PACK) < D) load_pack<PACK>(pack, row + column_of(p * PACK));
        for (int j = 0; j < PACK; j++) numbers[p * PACK + j] = pack[j];
    }
}

__device__ inline void store_row(T *row, const float (&numbers)[LANE], long long D) {
    #pragma unroll
    for (int p = 0; p < PACKS; p++) {
        float pack[PACK];
        for (int j = 0; j < PACK; j++) pack[j] = numbers[p * PACK + j];
        if (column_of(p * PACK) < D) store_pack<PACK>(row + column_of(p * PACK), pack);
    }
}

// y = (x − μ) / √(σ² + ε) · weight + bias.
// statistics (3, rows): the mean, what its rounding has left of it, 1 / standard deviation.
extern "C" __global__ void __launch_bounds__(256) layernorm_forward(
    const T *x, const float *weight, const float *bias, float eps, T *y, float *statistics, long long rows, long long D
) {
    float w[LANE], b[LANE];
    load_row(w, weight, D);
    load_row(b, bias, D);
    for (long long row = (long long)blockIdx.x * AT_ONCE + threadIdx.x / SPAN; row < rows; row += gridDim.x * AT_ONCE) {
        float numbers[LANE], total = 0.0f, rest = 0.0f, squares = 0.0f;
        load_row(numbers, x + row * D, D);
        #pragma unroll
        for (int i = 0; i < LANE; i++) total += numbers[i];
        float mean = row_sum(total) / D;
        #pragma unroll
        for (int i = 0; i < LANE; i++) {
            numbers[i] = column_of(i) < D ? numbers[i] - mean : 0.0f;
            rest += numbers[i];
        }
        rest = row_sum(rest) / D;
        #pragma unroll
        for (int i = 0; i < LANE; i++) {
            numbers[i] = column_of(i) < D ? numbers[i] - rest : 0.0f;
            squares += numbers[i] * numbers[i];
        }
        float rstd = 1.0f / sqrtf(row_sum(squares) / D + eps);
        #pragma unroll
        for (int i = 0; i < LANE; i++) numbers[i] = numbers[i] * rstd * w[i] + b[i];
        store_row(y + row * D, numbers, D);
        if (threadIdx.x % SPAN == 0) {
            statistics[row] = mean;
            statistics[rows + row] = rest;
            statistics[2 * rows + row] = rstd;
        }
    }
}

// The sums of all rows' numbers, column by column, as one row.
__device__ inline void store_block_sums(float *row, const float (&numbers)[LANE], long long D) {
    __shared__ float of_row[AT_ONCE][SPAN * LANE];
    __syncthreads();  // the sums before these may still be read
    #pragma unroll
    for (int i = 0; i < LANE; i++) of_row[threadIdx.x / SPAN][column_of(i)] = numbers[i];
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
    long long D
) {
    float w[LANE], dweight[LANE] = {}, dbias[LANE] = {};
    load_row(w, weight, D);
    for (long long row = (long long)blockIdx.x * AT_ONCE + threadIdx.x / SPAN; row < rows; row += gridDim.x * AT_ONCE) {
        float g[LANE], xhat[LANE], mean_g = 0.0f, along = 0.0f;
        float mean = statistics[row], rest = statistics[rows + row], rstd = statistics[2 * rows + row];
        load_row(g, dy + row * D, D);
        load_row(xhat, x + row * D, D);
        #pragma unroll
        for (int i = 0; i < LANE; i++) {
            xhat[i] = column_of(i) < D ? (xhat[i] - mean - rest) * rstd : 0.0f;
            dweight[i] += g[i] * xhat[i];
            dbias[i] += g[i];
            g[i] = __fmul_rn(g[i], w[i]);  // rounded, so that what is equal in a row cancels to nothing
            mean_g += g[i];
            along += g[i] * xhat[i];
        }
        mean_g = row_sum(mean_g) / D;
        along = row_sum(along) / D;
        #pragma unroll
        for (int i = 0; i < LANE; i++) g[i] = (g[i] - mean_g - xhat[i] * along) * rstd;
        store_row(dx + row * D, g, D);
    }
    if (!partial) return;
    store_block_sums(partial + blockIdx.x * D, dweight, D);
    store_block_sums(partial + ((long long)gridDim.x + blockIdx.x) * D, dbias, D);
}
