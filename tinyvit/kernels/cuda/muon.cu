// Muon's step on matrices in the flat arrays, all float32, besides the products. Block (c, i) has chunk c of matrix i; it
// does nothing where the matrix has fewer chunks or the step is left out.

struct Matrix {
    long long start, place;  // where it begins in the flat arrays, and in the arrays of the directions
    long long size, side;    // its entries, and the rows and columns of its Gram matrix
    float rate, decay;       // what the learning rate is multiplied with, and the rate of weight decay
};

constexpr long long CHUNK = 4096;

// Calls f(i) for every PACK-th entry from the begin of the block's chunk on that is this thread's, of `size` in all.
template <class F> __device__ inline void for_packs(long long size, F f) {
    long long begin = blockIdx.x * CHUNK, end = begin + CHUNK < size ? begin + CHUNK : size;
    for (long long i = begin + threadIdx.x * PACK; i < end; i += blockDim.x * PACK) f(i);
}

__device__ inline bool nothing_to_do(long long size, const bool *where) {
    return blockIdx.x * CHUNK >= size || (where && !*where);
}

// Updates the momenta m, which make the directions u = weight_g g + weight_m m. Row i of sums (matrices, chunks of the
// largest) gets the sum of the squares in each chunk of u.
extern "C" __global__ void __launch_bounds__(256) muon_momentum(
    const float *g, float *m, float *sums, const Matrix *matrices, const bool *where,
    float momentum, float one_minus_momentum, float weight_g, float weight_m
) {
    Matrix matrix = matrices[blockIdx.y];
    if (nothing_to_do(matrix.size, where)) return;
    g += matrix.start;
    m += matrix.start;
    float sum = 0.0f;
    for_packs(matrix.size, [&](long long i) {
        float dx[PACK], mean[PACK];
        load_pack<PACK>(dx, g + i);
        load_pack<PACK>(mean, m + i);
        for (int j = 0; j < PACK; j++) {
            mean[j] = momentum * mean[j] + one_minus_momentum * dx[j];
            float u = weight_g * dx[j] + weight_m * mean[j];
            sum += u * u;
        }
        store_pack<PACK>(m + i, mean);
    });
    sum = block_sum(sum);
    if (threadIdx.x == 0) sums[(long long)blockIdx.y * gridDim.x + blockIdx.x] = sum;
}

// x <- u / (|u| + eps), with the squares of the chunks added up by every block in the same order.
extern "C" __global__ void __launch_bounds__(256) muon_direction(
    const float *g, const float *m, const float *sums, float *x, const Matrix *matrices, const bool *where,
    float weight_g, float weight_m, float eps
) {
    Matrix matrix = matrices[blockIdx.y];
    if (nothing_to_do(matrix.size, where)) return;
    g += matrix.start;
    m += matrix.start;
    x += matrix.place;
    sums += (long long)blockIdx.y * gridDim.x;
    float sum = 0.0f;
    for (long long chunk = threadIdx.x; chunk * CHUNK < matrix.size; chunk += blockDim.x) sum += sums[chunk];
    float norm = sqrtf(block_sum(sum)) + eps;
    for_packs(matrix.size, [&](long long i) {
        float dx[PACK], u[PACK];
        load_pack<PACK>(dx, g + i);
        load_pack<PACK>(u, m + i);
        for (int j = 0; j < PACK; j++) u[j] = (weight_g * dx[j] + weight_m * u[j]) / norm;
        store_pack<PACK>(x + i, u);
    });
}

// square <- a I + b gram + c square, for square = gram gram.
extern "C" __global__ void __launch_bounds__(256) muon_polynomial(
    const float *gram, float *square, const Matrix *matrices, const bool *where, float a, float b, float c
) {
    Matrix matrix = matrices[blockIdx.y];
    long long size = matrix.side * matrix.side;
    if (nothing_to_do(size, where)) return;
    gram += matrix.place;
    square += matrix.place;
    unsigned int step = matrix.side + 1;  // from one entry of the diagonal to the next
    for_packs(size, [&](long long i) {
        float once[PACK], twice[PACK];
        load_pack<PACK>(once, gram + i);
        load_pack<PACK>(twice, square + i);
        for (int j = 0; j < PACK; j++) {
            float diagonal = (unsigned int)(i + j) % step ? 0.0f : a;
            twice[j] = diagonal + b * once[j] + c * twice[j];
        }
        store_pack<PACK>(square + i, twice);
    });
}

// theta <- theta - decay theta - lr x, both rates multiplied as the matrix has it.
extern "C" __global__ void __launch_bounds__(256) muon_update(
    float *theta, const float *x, const Matrix *matrices, const bool *where, float lr, float decay
) {
    Matrix matrix = matrices[blockIdx.y];
    if (nothing_to_do(matrix.size, where)) return;
    theta += matrix.start;
    x += matrix.place;
    lr *= matrix.rate;
    decay *= matrix.decay;
    for_packs(matrix.size, [&](long long i) {
        float weights[PACK], step[PACK];
        load_pack<PACK>(weights, theta + i);
        load_pack<PACK>(step, x + i);
        for (int j = 0; j < PACK; j++) weights[j] -= decay * weights[j] + lr * step[j];
        store_pack<PACK>(theta + i, weights);
    });
}
