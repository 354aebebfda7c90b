// Depthwise convolutions, each filter on one channel: x (B, C, H, W), weight (C·M, P, Q), y (B, C·M, rows, columns). The
// window in row i and column j begins at the pixel (down i − above, right j − left).

constexpr int BLOCK = 256;

extern "C" __global__ void depthwise_forward(
    const T *x, const T *weight, const float *bias, T *y, long long count, long long filters, long long M, long long H,
    long long W, long long P, long long Q, long long down, long long right, long long above, long long left, long long rows,
    long long columns
) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= count) return;
    long long plane = at / (rows * columns);
    unsigned int rest = at - plane * rows * columns, filter = plane % filters;
    int row = rest / (int)columns * down - above, column = rest % (int)columns * right - left;
    const T *image = x + plane / M * H * W;  // (b C M + c M + m) / M
    weight += filter * P * Q;
    float sum = bias ? bias[filter] : 0.0f;
    for (int p = row; p < row + P; p++) {
        for (int q = column; q < column + Q; q++, weight++) {
            if (0 <= p && p < H && 0 <= q && q < W) sum += to_float(*weight) * to_float(image[p * W + q]);
        }
    }
    store(y + at, sum);
}

// Each pixel adds up what the windows that see it have for it, filter by filter and row by row.
extern "C" __global__ void depthwise_dx(
    const T *dy, const T *weight, T *dx, long long count, long long filters, long long M, long long H, long long W,
    long long P, long long Q, long long down, long long right, long long above, long long left, long long rows,
    long long columns
) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= count) return;
    long long plane = at / (H * W);
    unsigned int rest = at - plane * H * W, down_by = down, right_by = right;
    int row = rest / (int)W + above, column = rest % (int)W + left;  // in the padded image
    int begin = row < P ? 0 : (row - (int)P) / down_by + 1, end = min((int)rows, (int)(row / down_by) + 1);
    int start = column < Q ? 0 : (column - (int)Q) / right_by + 1, stop = min((int)columns, (int)(column / right_by) + 1);
    float sum = 0.0f;
    for (long long map = plane * M; map < plane * M + M; map++) {
        const T *from = dy + map * rows * columns, *of = weight + map % filters * P * Q;
        for (int i = begin; i < end; i++) {
            for (int j = start; j < stop; j++) {
                long long place = (row - i * down) * Q + column - j * right;
                sum += to_float(of[place]) * to_float(from[i * columns + j]);
            }
        }
    }
    store(dx + at, sum);
}

// partial (parts, filters, P, Q): block (x, y) adds up dy times the pixel at place x of all filters' places, over part y of
// the B · rows · columns windows, which has `share` of them.
extern "C" __global__ void __launch_bounds__(256) depthwise_dweight(
    const T *dy, const T *x, float *partial, long long B, long long share, long long filters, long long M, long long H,
    long long W, long long P, long long Q, long long down, long long right, long long above, long long left, long long rows,
    long long columns
) {
    unsigned int filter = blockIdx.x / (int)(P * Q), place = blockIdx.x % (int)(P * Q), width = columns;
    int p = place / (int)Q - above, q = place % (int)Q - left, channel = filter / (int)M;
    long long windows = rows * columns, begin = blockIdx.y * share + threadIdx.x, b = begin / windows;
    int window = begin - b * windows, turn = BLOCK % windows, images = BLOCK / windows;
    float sum = 0.0f;
    for (long long left = min(share, B * windows - blockIdx.y * share) - threadIdx.x; left > 0; left -= BLOCK) {
        int row = window / width * down + p, column = window % width * right + q;
        if (0 <= row && row < H && 0 <= column && column < W) {
            float gradient = to_float(dy[(b * filters + filter) * windows + window]);
            sum += gradient * to_float(x[((b * (filters / M) + channel) * H + row) * W + column]);
        }
        b += images;
        window += turn;
        if (window >= windows) window -= windows, b++;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) partial[(long long)blockIdx.y * gridDim.x + blockIdx.x] = sum;
}
