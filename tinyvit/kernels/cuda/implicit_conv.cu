// Convolutions as products on tensor cores, without columns in memory ("implicit GEMM"): a block gathers a tile of the
// columns into shared memory, multiplies it, and gathers the next. For each group of C channels and O filters,
//
//   y        (O × C·P·Q)      times  (C·P·Q × windows)       a column is a window of x, read by one thread
//   dx       (C × O·P·Q)      times  (O·P·Q × pixels)        a column is what the windows on a pixel have for it
//   dweight  (O × windows)    times  (windows × C·P·Q)       a row is a window; the blocks along z share the windows
//
// A block computes 64 × 128 numbers of the result, each of its 4 warps 32 × 64, in steps of 32 along the sums:
//
//                      128 columns: tile b[128][32]
//                     ┌──────────────┬──────────────┐
//       64 rows:      │    warp 0    │    warp 1    │  32      a warp: 2 × 8 tiles of 16 × 8, by `multiply`
//       tile a[64][32]├──────────────┼──────────────┤
//                     │    warp 2    │    warp 3    │  32
//                     └──────────────┴──────────────┘
//                            64             64

constexpr int ROWS = 64, COLUMNS = 128, STEP = 32, THREADS = 128;
// A row in shared memory. It is a pack longer than a step, so that eight threads reach eight rows in different banks.
struct alignas(16) Row { T number[STEP + 8]; };

struct Sides { int height, width; };

// One step along the sums, or one column of dweight: where it reads the filters, in which channel the images, and how far
// from the window's or pixel's place.
struct Place { int filter, channel, down, right; };
constexpr int NOWHERE = 1 << 24;  // rows down it is outside of every image

__device__ inline unsigned int pair_at(const T *where) { return *reinterpret_cast<const unsigned int *>(where); }

// sums += a bᵀ for the tiles in shared memory, as far as a warp has them.
__device__ inline void multiply_tiles(const Row (&a)[ROWS], const Row (&b)[COLUMNS], float (&sums)[2][8][4]) {
    int warp = threadIdx.x / 32, group = threadIdx.x % 32 / 4, pair = threadIdx.x % 4 * 2;
    int row = warp / 2 * 32 + group, column = warp % 2 * 64 + group;
    for (int k = pair; k < STEP; k += 16) {
        unsigned int of_a[2][4];
        for (int i = 0; i < 2; i++) {
            of_a[i][0] = pair_at(&a[row + 16 * i].number[k]);
            of_a[i][1] = pair_at(&a[row + 16 * i + 8].number[k]);
            of_a[i][2] = pair_at(&a[row + 16 * i].number[k + 8]);
            of_a[i][3] = pair_at(&a[row + 16 * i + 8].number[k + 8]);
        }
        for (int j = 0; j < 8; j++) {
            const T *of_b = &b[column + 8 * j].number[k];
            for (int i = 0; i < 2; i++) multiply(T(), sums[i][j], of_a[i], pair_at(of_b), pair_at(of_b + 8));
        }
    }
}

// goal (B, G·rows, sides of `to`) = filters · what `source` (B, G·channels, sides of `from`) has at each place, + bias.
// Forward, a place is a window of the images; BACK, it is a pixel, and what its windows have for it.
template <bool BACK> __device__ inline void convolve(
    const T *source, const T *weight, const float *bias, T *goal, unsigned int count, int rows, int channels, Sides from,
    Sides to, Sides kernel, Sides stride, Sides margin
) {
    __shared__ Row a[ROWS], b[COLUMNS];
    __shared__ Place places[STEP];
    int group = blockIdx.z, groups = gridDim.z, taps = kernel.height * kernel.width, length = channels * taps;
    int first_row = blockIdx.y * ROWS, pixels = to.height * to.width, k = threadIdx.x % STEP;
    weight += (long long)group * rows * length;
    unsigned int at = blockIdx.x * COLUMNS + threadIdx.x, sample = at / pixels, pixel = at % pixels;
    int row = pixel / to.width, column = pixel % to.width;
    row = BACK ? row + margin.height : row * stride.height - margin.height;
    column = BACK ? column + margin.width : column * stride.width - margin.width;
    if (at >= count) row = -2 * NOWHERE;  // which no place brings back
    else source += ((long long)sample * groups + group) * channels * from.height * from.width;

    float sums[2][8][4] = {};
    for (int first = 0; first < length; first += STEP) {
        __syncthreads();  // the last tiles have been multiplied
        if (threadIdx.x < STEP) {
            int channel = (first + k) / taps, tap = (first + k) % taps, p = tap / kernel.width, q = tap % kernel.width;
            int filter = BACK ? channel * rows * taps + tap : first + k;
            if (first + k >= length) p = NOWHERE;
            places[k] = {filter, channel * from.height * from.width, BACK ? -p : p, BACK ? -q : q};
        }
        __syncthreads();
        for (int i = threadIdx.x / STEP; i < ROWS; i += THREADS / STEP) {
            bool inside = first_row + i < rows && first + k < length;
            a[i].number[k] = inside ? weight[places[k].filter + (first_row + i) * (BACK ? taps : length)] : T{};
        }
        for (int begin = 0; begin < STEP; begin += 8) {
            Pack<T, 8> pack;
            for (int u = 0; u < 8; u++) {
                Place place = places[begin + u];
                int i = row + place.down, j = column + place.right;
                bool inside = true;
                if (BACK && (stride.height > 1 || stride.width > 1)) {
                    inside = i >= 0 && j >= 0 && i % stride.height == 0 && j % stride.width == 0;
                    i /= stride.height;
                    j /= stride.width;
                }
                inside = inside && (unsigned int)i < from.height && (unsigned int)j < from.width;
                pack.number[u] = inside ? source[place.channel + i * from.width + j] : T{};
            }
            *reinterpret_cast<Pack<T, 8> *>(&b[threadIdx.x].number[begin]) = pack;
        }
        __syncthreads();
        multiply_tiles(a, b, sums);
    }

    int warp = threadIdx.x / 32, of_warp = warp / 2 * 32 + threadIdx.x % 32 / 4;
    #pragma unroll
    for (int j = 0; j < 16; j++) {
        unsigned int n = blockIdx.x * COLUMNS + warp % 2 * 64 + j / 2 * 8 + threadIdx.x % 4 * 2 + j % 2;
        T *map = goal + ((long long)(n / pixels) * groups + group) * rows * pixels + n % pixels;
        #pragma unroll
        for (int i = 0; i < 4; i++) {
            int m = first_row + of_warp + 8 * i;
            if (n < count && m < rows) {
                float sum = sums[i / 2][j / 2][i % 2 * 2 + j % 2];
                store(map + (long long)m * pixels, sum + (bias ? bias[group * rows + m] : 0.0f));
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(128) implicit_conv_forward(
    const T *x, const T *weight, const float *bias, T *y, long long count, long long C, long long O, long long H,
    long long W, long long P, long long Q, long long down, long long right, long long above, long long left,
    long long rows, long long columns
) {
    convolve<false>(
        x, weight, bias, y, count, O, C, {(int)H, (int)W}, {(int)rows, (int)columns}, {(int)P, (int)Q},
        {(int)down, (int)right}, {(int)above, (int)left}
    );
}

extern "C" __global__ void __launch_bounds__(128) implicit_conv_dx(
    const T *dy, const T *weight, T *dx, long long count, long long C, long long O, long long H, long long W, long long P,
    long long Q, long long down, long long right, long long above, long long left, long long rows, long long columns
) {
    convolve<true>(
        dy, weight, nullptr, dx, count, C, O, {(int)rows, (int)columns}, {(int)H, (int)W}, {(int)P, (int)Q},
        {(int)down, (int)right}, {(int)above, (int)left}
    );
}

// partial (parts, G, O, C·P·Q): a part adds up `share` of the `count` windows.
extern "C" __global__ void __launch_bounds__(128) implicit_conv_dweight(
    const T *dy, const T *x, float *partial, long long count, long long share, long long groups, long long C, long long O,
    long long H, long long W, long long P, long long Q, long long down, long long right, long long above, long long left,
    long long rows, long long columns
) {
    __shared__ Row a[ROWS], b[COLUMNS];
    __shared__ Place places[COLUMNS];
    int group = blockIdx.z % groups, part = blockIdx.z / groups, taps = P * Q, length = C * taps, windows = rows * columns;
    int height = H, width = W, k = threadIdx.x % STEP, filters = O, first_row = blockIdx.y * ROWS;
    {
        int n = blockIdx.x * COLUMNS + threadIdx.x, tap = n % taps;
        places[threadIdx.x] = {0, n / taps * height * width, n < length ? tap / (int)Q : NOWHERE, tap % (int)Q};
    }
    unsigned int begin = part * share, end = min((long long)begin + share, count);

    float sums[2][8][4] = {};
    for (unsigned int first = begin; first < end; first += STEP) {
        unsigned int at = first + k, sample = at / windows, window = at % windows;
        int row = window / (int)columns * (int)down - (int)above, column = window % (int)columns * (int)right - (int)left;
        bool exists = at < end;
        const T *gradients = dy + ((long long)sample * groups + group) * filters * windows + window;
        const T *image = x + ((long long)sample * groups + group) * C * height * width;
        __syncthreads();
        for (int i = threadIdx.x / STEP; i < ROWS; i += THREADS / STEP) {
            bool inside = exists && first_row + i < filters;
            a[i].number[k] = inside ? gradients[(long long)(first_row + i) * windows] : T{};
        }
        for (int n = threadIdx.x / STEP; n < COLUMNS; n += THREADS / STEP) {
            Place place = places[n];
            int i = row + place.down, j = column + place.right;
            bool inside = exists && (unsigned int)i < height && (unsigned int)j < width;
            b[n].number[k] = inside ? image[place.channel + i * width + j] : T{};
        }
        __syncthreads();
        multiply_tiles(a, b, sums);
    }

    int warp = threadIdx.x / 32, m = first_row + warp / 2 * 32 + threadIdx.x % 32 / 4;
    int n = blockIdx.x * COLUMNS + warp % 2 * 64 + threadIdx.x % 4 * 2;
    partial += (long long)blockIdx.z * filters * length;
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 16; j++) {
            int row = m + 8 * i, column = n + j / 2 * 8 + j % 2;
            if (row < filters && column < length) {
                partial[(long long)row * length + column] = sums[i / 2][j / 2][i % 2 * 2 + j % 2];
            }
        }
    }
}
