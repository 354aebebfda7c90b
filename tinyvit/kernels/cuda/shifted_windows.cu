// Windows of tokens: `shifted_windows.py` says which. A grid of H × W tokens is padded to rows × columns windows of p × q
// tokens, and rolled by `shift` up and to the left. A thread moves PACK numbers of a token, to or from its window.

struct Cut { long long H, W, p, q, rows, columns, shift, width; };

// The number in the grid (B, H, W, width) of what lies at `at` in the windows (B, rows, columns, p, q, width), or −1 for
// padding.
__device__ inline long long in_grid(long long at, const Cut &cut) {
    long long token = at / cut.width, of_window = token % (cut.p * cut.q), window = token / (cut.p * cut.q);
    long long of_sample = window % (cut.rows * cut.columns), b = window / (cut.rows * cut.columns);
    long long row = of_sample / cut.columns * cut.p + of_window / cut.q + cut.shift;
    long long column = of_sample % cut.columns * cut.q + of_window % cut.q + cut.shift;
    if (row >= cut.rows * cut.p) row -= cut.rows * cut.p;
    if (column >= cut.columns * cut.q) column -= cut.columns * cut.q;
    if (row >= cut.H || column >= cut.W) return -1;
    return ((b * cut.H + row) * cut.W + column) * cut.width + at % cut.width;
}

// windows = the tokens of x, and zeros for padding.
extern "C" __global__ void cut_windows(
    const T *x, T *windows, long long count, long long H, long long W, long long p, long long q, long long rows,
    long long columns, long long shift, long long width
) {
    long long at = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * PACK;
    if (at >= count) return;
    long long from = in_grid(at, {H, W, p, q, rows, columns, shift, width});
    float numbers[PACK] = {};
    if (from >= 0) load_pack<PACK>(numbers, x + from);
    store_pack<PACK>(windows + at, numbers);
}

// x = the tokens of the windows; what lies in padding is dropped.
extern "C" __global__ void join_windows(
    const T *windows, T *x, long long count, long long H, long long W, long long p, long long q, long long rows,
    long long columns, long long shift, long long width
) {
    long long at = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * PACK;
    if (at >= count) return;
    long long to = in_grid(at, {H, W, p, q, rows, columns, shift, width});
    if (to < 0) return;
    float numbers[PACK];
    load_pack<PACK>(numbers, windows + at);
    store_pack<PACK>(x + to, numbers);
}
