// Columns of convolutions: what the height × width windows of n images see, a column for each window, and gradients of
// columns back in the images. The window in row i and column j begins at the pixel (down i − above, right j − left) of H × W.

struct Place { long long plane; int row, column; };

// Which of the planes of rows × columns numbers a thread has, and where in it.
__device__ inline Place place_of(long long at, int rows, int columns) {
    long long plane = at / (rows * columns);
    unsigned int rest = at - plane * (rows * columns);
    return {plane, (int)(rest / columns), (int)(rest % columns)};
}

// columns (C, P, Q, n, height, width): the pixel of x (n, C, H, W) at each place (p, q) of each window, 0 outside.
extern "C" __global__ void conv_fill(
    const T *x, T *columns, long long n, long long C, long long H, long long W, long long P, long long Q, long long down,
    long long right, long long above, long long left, long long height, long long width
) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x, windows = n * height * width;
    if (at >= C * windows) return;
    Place window = place_of(at, height, width);
    long long c = window.plane / n, b = window.plane - c * n;
    int row = window.row * down - above, column = window.column * right - left;
    const T *image = x + (b * C + c) * H * W;
    T *goal = columns + c * P * Q * windows + (at - c * windows);
    for (int p = row; p < row + P; p++) {
        for (int q = column; q < column + Q; q++, goal += windows) {
            bool inside = 0 <= p && p < H && 0 <= q && q < W;
            *goal = inside ? image[p * W + q] : T{};
        }
    }
}

// dx (n, C, H, W): each pixel adds up what the windows that see it have for it, row by row.
extern "C" __global__ void conv_gather(
    const T *columns, T *dx, long long n, long long C, long long H, long long W, long long P, long long Q, long long down,
    long long right, long long above, long long left, long long height, long long width
) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= n * C * H * W) return;
    Place pixel = place_of(at, H, W);
    int c = pixel.plane % C, b = pixel.plane / C, down_by = down, right_by = right;
    int row = pixel.row + above, column = pixel.column + left;  // in the padded image
    int begin = row < P ? 0 : (row - (int)P) / down_by + 1, end = min((int)height, row / down_by + 1);
    int start = column < Q ? 0 : (column - (int)Q) / right_by + 1, stop = min((int)width, column / right_by + 1);
    float sum = 0.0f;
    for (int i = begin; i < end; i++) {
        for (int j = start; j < stop; j++) {
            long long place = (c * P + row - i * down_by) * Q + column - j * right_by;
            sum += to_float(columns[((place * n + b) * height + i) * width + j]);
        }
    }
    store(dx + at, sum);
}

// goal = source + bias, or without a bias a copy, for maps (n, O, length) whose images and channels lie as the strides say.
extern "C" __global__ void conv_move(
    const T *source, T *goal, const float *bias, long long n, long long O, long long length, long long source_image,
    long long source_channel, long long goal_image, long long goal_channel
) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= n * O * length) return;
    Place number = place_of(at, 1, length);
    int b = number.plane / O, o = number.plane - b * O;
    const T *from = source + b * source_image + o * source_channel + number.column;
    T *to = goal + b * goal_image + o * goal_channel + number.column;
    if (bias) store(to, to_float(*from) + bias[o]);
    else *to = *from;
}
