// Pooling of maps of H × W numbers. The window in row i and column j begins at the number (down i − above, right j − left);
// there are rows × columns windows on a map. A thread has a number of what is written.

struct Place { long long plane; int row, column; };

// Which of the maps of rows × columns numbers a thread has, and where in it.
__device__ inline Place place_of(long long at, int rows, int columns) {
    long long plane = at / (rows * columns);
    unsigned int rest = at - plane * (rows * columns);
    return {plane, (int)(rest / columns), (int)(rest % columns)};
}

struct Span { int begin, end; };

// The windows that see a number, along one axis: its place in the padded map is `at`.
__device__ inline Span windows_at(int at, int kernel, int stride, int windows) {
    return {at < kernel ? 0 : (at - kernel) / stride + 1, min(windows, at / stride + 1)};
}

// y: the largest number of each window; place: which one, row by row. Of equal ones it is the first, of NaN the last.
extern "C" __global__ void max_pool_forward(
    const T *x, T *y, int *place, long long count, long long H, long long W, long long P, long long Q, long long down,
    long long right, long long above, long long left, long long rows, long long columns
) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= count) return;
    Place window = place_of(at, rows, columns);
    const T *map = x + window.plane * H * W;
    int row = window.row * down - above, column = window.column * right - left;
    int found = max(0, -row) * Q + max(0, -column);  // of nothing but -infinity it is the first inside, too
    float largest = -infinity();
    for (int p = max(0, -row); p < P && row + p < H; p++) {
        for (int q = max(0, -column); q < Q && column + q < W; q++) {
            float number = to_float(map[(row + p) * W + column + q]);
            if (!(number > largest || number != number)) continue;
            largest = number;
            found = p * Q + q;
        }
    }
    store(y + at, largest);
    place[at] = found;
}

extern "C" __global__ void max_pool_backward(
    const T *dy, const int *place, T *dx, long long count, long long H, long long W, long long P, long long Q, long long down,
    long long right, long long above, long long left, long long rows, long long columns
) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= count) return;
    Place number = place_of(at, H, W);
    int row = number.row + above, column = number.column + left;
    Span over = windows_at(row, P, down, rows), along = windows_at(column, Q, right, columns);
    float sum = 0.0f;
    for (int i = over.begin; i < over.end; i++) {
        for (int j = along.begin; j < along.end; j++) {
            long long window = (number.plane * rows + i) * columns + j;
            if (place[window] == (row - i * down) * Q + column - j * right) sum += to_float(dy[window]);
        }
    }
    store(dx + at, sum);
}

// y = share · the sum of each window; what is outside the map counts as 0.
extern "C" __global__ void avg_pool_forward(
    const T *x, T *y, float share, long long count, long long H, long long W, long long P, long long Q, long long down,
    long long right, long long above, long long left, long long rows, long long columns
) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= count) return;
    Place window = place_of(at, rows, columns);
    const T *map = x + window.plane * H * W;
    int row = window.row * down - above, column = window.column * right - left;
    float sum = 0.0f;
    for (int p = max(0, row); p < H && p < row + P; p++) {
        for (int q = max(0, column); q < W && q < column + Q; q++) sum += to_float(map[p * W + q]);
    }
    store(y + at, sum * share);
}

extern "C" __global__ void avg_pool_backward(
    const T *dy, T *dx, float share, long long count, long long H, long long W, long long P, long long Q, long long down,
    long long right, long long above, long long left, long long rows, long long columns
) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= count) return;
    Place number = place_of(at, H, W);
    Span over = windows_at(number.row + above, P, down, rows), along = windows_at(number.column + left, Q, right, columns);
    float sum = 0.0f;
    for (int i = over.begin; i < over.end; i++) {
        for (int j = along.begin; j < along.end; j++) sum += to_float(dy[(number.plane * rows + i) * columns + j]);
    }
    store(dx + at, sum * share);
}

// y (maps,): share · the sum of each map of x (maps, S), a warp a map.
extern "C" __global__ void map_means(const T *x, T *y, float share, long long maps, long long S) {
    long long map = ((long long)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (map >= maps) return;
    float sum = 0.0f;
    for (long long i = threadIdx.x % 32; i < S; i += 32) sum += to_float(x[map * S + i]);
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) store(y + map, sum * share);
}

extern "C" __global__ void spread_over_maps(const T *dy, T *dx, float share, long long count, long long S) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) store(dx + at, to_float(dy[at / S]) * share);
}
