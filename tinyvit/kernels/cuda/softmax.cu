// Softmax of rows of up to SPAN · LANE numbers that start `stride` numbers apart, forward and back. The result may take
// the place of what is read: a row is in the threads' registers before anything is written.
//
// SPAN  threads that share a row, 8 or 32
// LANE  numbers that a thread holds, in packs that lie SPAN packs apart

constexpr int BLOCK = 256, PACKS = LANE / PACK;

__device__ inline int column_of(int i) { return (i / PACK * SPAN + threadIdx.x % SPAN) * PACK + i % PACK; }

__device__ inline float row_sum(float x) {
    for (int offset = SPAN / 2; offset > 0; offset >>= 1) x += __shfl_xor_sync(ALL, x, offset);
    return x;
}

__device__ inline float row_max(float x) {
    for (int offset = SPAN / 2; offset > 0; offset >>= 1) x = fmaxf(x, __shfl_xor_sync(ALL, x, offset));
    return x;
}

// A row's numbers, whatever lies between its end and that of its last pack, and zeros.
__device__ inline void load_row(float (&numbers)[LANE], const T *row, long long N) {
    #pragma unroll
    for (int p = 0; p < PACKS; p++) {
        float pack[PACK] = {};
        if (column_of(p * PACK) < N) load_pack<PACK>(pack, row + column_of(p * PACK));
        for (int j = 0; j < PACK; j++) numbers[p * PACK + j] = pack[j];
    }
}

__device__ inline void store_row(T *row, const float (&numbers)[LANE], long long N) {
    #pragma unroll
    for (int p = 0; p < PACKS; p++) {
        float pack[PACK];
        for (int j = 0; j < PACK; j++) pack[j] = numbers[p * PACK + j];
        if (column_of(p * PACK) < N) store_pack<PACK>(row + column_of(p * PACK), pack);
    }
}

// p = exp(scale x − m) / Σ exp(scale x − m) with the row's largest number m; zeros up to the end of the last pack.
extern "C" __global__ void __launch_bounds__(256) softmax_forward(
    const T *x, T *probs, float scale, long long rows, long long N, long long x_stride, long long probs_stride
) {
    long long row = ((long long)blockIdx.x * BLOCK + threadIdx.x) / SPAN;
    if (row >= rows) row = N = 0;  // a warp stays whole: it adds up together
    float numbers[LANE], largest = -infinity(), total = 0.0f;
    load_row(numbers, x + row * x_stride, N);
    #pragma unroll
    for (int i = 0; i < LANE; i++) {
        numbers[i] = column_of(i) < N ? numbers[i] * scale : -infinity();
        largest = fmaxf(largest, numbers[i]);
    }
    largest = row_max(largest);
    #pragma unroll
    for (int i = 0; i < LANE; i++) {
        numbers[i] = column_of(i) < N ? expf(numbers[i] - largest) : 0.0f;
        total += numbers[i];
    }
    float share = 1.0f / row_sum(total);
    #pragma unroll
    for (int i = 0; i < LANE; i++) numbers[i] *= share;
    store_row(probs + row * probs_stride, numbers, N);
}

// dx = scale p (dp − Σ dp p); zeros up to the end of the last pack.
extern "C" __global__ void __launch_bounds__(256) softmax_backward(
    const T *dprobs, const T *probs, T *dx, float scale, long long rows, long long N, long long dprobs_stride,
    long long probs_stride, long long dx_stride
) {
    long long row = ((long long)blockIdx.x * BLOCK + threadIdx.x) / SPAN;
    if (row >= rows) row = N = 0;
    float dp[LANE], p[LANE], along = 0.0f;
    load_row(dp, dprobs + row * dprobs_stride, N);
    load_row(p, probs + row * probs_stride, N);
    #pragma unroll
    for (int i = 0; i < LANE; i++) {
        if (column_of(i) >= N) dp[i] = p[i] = 0.0f;
        along += dp[i] * p[i];
    }
    along = row_sum(along);
    #pragma unroll
    for (int i = 0; i < LANE; i++) dp[i] = scale * p[i] * (dp[i] - along);
    store_row(dx + row * dx_stride, dp, N);
}
