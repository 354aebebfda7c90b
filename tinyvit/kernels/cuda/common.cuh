// Shared by all kernels: number formats, packs of numbers that are loaded at once, sums over a warp and a block.
// This text stands in front of every .cu file here. All arithmetic is in float, whatever the arrays hold. Behind it come
// the definitions that a file is compiled for, which most of them have:
//
// T     what an array holds: float, bfloat16 or float16
// PACK  how many of them a thread loads and stores at once: 16 bytes' worth, or 1 where rows don't start on such a boundary

struct bfloat16 { unsigned short bits; };  // the upper half of a float: 8 bits of exponent, 7 of mantissa
struct float16 { unsigned short bits; };   // IEEE 754's: 5 bits of exponent, 10 of mantissa

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(bfloat16 x) { return __uint_as_float((unsigned int)x.bits << 16); }
__device__ inline float to_float(float16 x) { return float_of_half_bits(x.bits); }

// Rounded to nearest, ties to even.
__device__ inline void store(float *where, float x) { *where = x; }
__device__ inline void store(bfloat16 *where, float x) { where->bits = bfloat16_bits_of_float(x); }
__device__ inline void store(float16 *where, float x) { where->bits = half_bits_of_float(x); }

__device__ inline float infinity() { return __uint_as_float(0x7f800000u); }

// On a boundary of 16 bytes at the most: beside eight bfloat16 lie eight floats that are loaded in two parts.
template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack { T number[N]; };

template <int N, class T> __device__ inline void load_pack(float (&numbers)[N], const T *where) {
    Pack<T, N> pack = *reinterpret_cast<const Pack<T, N> *>(where);
    for (int i = 0; i < N; i++) numbers[i] = to_float(pack.number[i]);
}

template <class T> constexpr bool IN_PAIRS = false;  // whether one instruction rounds two numbers
template <> constexpr bool IN_PAIRS<bfloat16> = true;

template <int N, class T> __device__ inline void store_pack(T *where, const float (&numbers)[N]) {
    if constexpr (IN_PAIRS<T> && N % 2 == 0) {
        Pack<unsigned int, N / 2> pack;
        for (int i = 0; i < N / 2; i++) pack.number[i] = bfloat16_bits_of_floats(numbers[2 * i], numbers[2 * i + 1]);
        *reinterpret_cast<Pack<unsigned int, N / 2> *>(where) = pack;
    } else {
        Pack<T, N> pack;
        for (int i = 0; i < N; i++) store(&pack.number[i], numbers[i]);
        *reinterpret_cast<Pack<T, N> *>(where) = pack;
    }
}

// -- on tensor cores: nvidia.cuh says which thread has which numbers of c += a b ---------------------------------------

__device__ inline void multiply(bfloat16, float (&c)[4], const unsigned int (&a)[4], unsigned int b0, unsigned int b1) {
    multiply_bfloat16(c, a, b0, b1);
}
__device__ inline void multiply(float16, float (&c)[4], const unsigned int (&a)[4], unsigned int b0, unsigned int b1) {
    multiply_half(c, a, b0, b1);
}

// -- over the 32 threads of a warp: every thread gets the result, and the order of additions is always the same ------

constexpr unsigned int ALL = 0xffffffffu;

// Over LANES neighbouring threads, each of whom belongs to one such group.
template <int LANES = 32> __device__ inline float warp_sum(float x) {
    for (int offset = LANES / 2; offset > 0; offset >>= 1) x += __shfl_xor_sync(ALL, x, offset);
    return x;
}

__device__ inline float warp_max(float x) {  // of numbers; undefined for NaN
    for (int offset = 16; offset > 0; offset >>= 1) x = fmaxf(x, __shfl_xor_sync(ALL, x, offset));
    return x;
}

// -- over all threads of a block, a multiple of 32 and at most 1024 of them -------------------------------------------

__device__ inline float block_sum(float x) {
    __shared__ float of_warp[32];
    x = warp_sum(x);
    __syncthreads();  // a sum before this one may still be read
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
    __syncthreads();
    return warp_sum(threadIdx.x % 32 < blockDim.x / 32 ? of_warp[threadIdx.x % 32] : 0.0f);
}

__device__ inline float block_max(float x) {
    __shared__ float of_warp[32];
    x = warp_max(x);
    __syncthreads();
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
    __syncthreads();
    return warp_max(of_warp[threadIdx.x % 32 < blockDim.x / 32 ? threadIdx.x % 32 : 0]);
}

// -- over the rows of a matrix: a block of 256 threads has 32 · N columns, of which each thread of a warp sums up N -----

// The sum over the block's warps, into the block's columns of `row`.
template <int N> __device__ inline void store_column_sums(float *row, const float (&sums)[N], long long columns, bool add) {
    __shared__ float of_warp[8][32 * N];
    for (int j = 0; j < N; j++) of_warp[threadIdx.x / 32][threadIdx.x % 32 * N + j] = sums[j];
    __syncthreads();
    long long column = (long long)blockIdx.x * 32 * N + threadIdx.x;
    if (threadIdx.x >= 32 * N || column >= columns) return;
    float sum = 0.0f;
    for (int w = 0; w < 8; w++) sum += of_warp[w][threadIdx.x];
    row[column] = add ? row[column] + sum : sum;
}

// -- random numbers: `keys.Key.uniform`, number by number ----------------------------------------------------------

__device__ inline unsigned long long mix64(unsigned long long z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

// The number for entry `entry` of row `row`; `first` is what the key gives the first row.
__device__ inline float uniform(unsigned long long first, long long row, long long entry) {
    const unsigned long long gamma = 0x9E3779B97F4A7C15ull;
    unsigned long long both = mix64(mix64(first + row * gamma) + (entry / 2 + 1) * gamma);
    unsigned int half = entry % 2 ? both >> 32 : both;
    return (half >> 8) * (1.0f / 16777216.0f);
}
