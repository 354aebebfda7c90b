// Group norm of x (B, C, S), S positions in each of C channels. A row is a group of channels of a sample, D = each · S
// numbers that lie side by side; there are C / each of them in a sample.

constexpr int BLOCK = 256;

// y = (x − μ) / √(σ² + ε) · weight + bias, a block a row. statistics (3, rows): 1 / standard deviation, the mean, what its
// rounding has left of it.
extern "C" __global__ void __launch_bounds__(256) group_norm_forward(
    const T *x, const float *weight, const float *bias, T *y, float *statistics, float eps, long long rows, long long C,
    long long each, long long S
) {
    long long row = blockIdx.x, D = each * S;
    int positions = S, first = row % (C / each) * each;
    x += row * D;
    y += row * D;
    float numbers[PACK], total = 0.0f, rest = 0.0f, squares = 0.0f;
    for (long long i = threadIdx.x * PACK; i < D; i += BLOCK * PACK) {
        load_pack<PACK>(numbers, x + i);
        for (int j = 0; j < PACK; j++) total += numbers[j];
    }
    float mean = block_sum(total) / D;
    for (long long i = threadIdx.x * PACK; i < D; i += BLOCK * PACK) {
        load_pack<PACK>(numbers, x + i);
        for (int j = 0; j < PACK; j++) {
            float apart = numbers[j] - mean;
            rest += apart;
            squares += apart * apart;
        }
    }
    rest = block_sum(rest) / D;
    float variance = block_sum(squares) / D - rest * rest, rstd = 1.0f / sqrtf((variance < 0.0f ? 0.0f : variance) + eps);
    for (long long i = threadIdx.x * PACK; i < D; i += BLOCK * PACK) {
        int channel = first + (unsigned int)i / positions;
        float w = weight[channel], b = bias[channel];
        load_pack<PACK>(numbers, x + i);
        for (int j = 0; j < PACK; j++) numbers[j] = (numbers[j] - mean - rest) * rstd * w + b;
        store_pack<PACK>(y + i, numbers);
    }
    if (threadIdx.x) return;
    statistics[row] = rstd;
    statistics[rows + row] = mean;
    statistics[2 * rows + row] = rest;
}

// sums (2, B, C): Σ dy x̂ and Σ dy over the positions of each channel of each sample, a warp each.
extern "C" __global__ void __launch_bounds__(256) group_norm_sums(
    const T *dy, const T *x, const float *statistics, float *sums, long long channels, long long each, long long S
) {
    long long at = (long long)blockIdx.x * (BLOCK / 32) + threadIdx.x / 32, row = at / each, rows = channels / each;
    if (at >= channels) return;
    float rstd = statistics[row], mean = statistics[rows + row], rest = statistics[2 * rows + row];
    float sum = 0.0f, along = 0.0f;
    for (long long i = threadIdx.x % 32 * PACK; i < S; i += 32 * PACK) {
        float gradients[PACK], numbers[PACK];
        load_pack<PACK>(gradients, dy + at * S + i);
        load_pack<PACK>(numbers, x + at * S + i);
        for (int j = 0; j < PACK; j++) {
            sum += gradients[j];
            along += gradients[j] * ((numbers[j] - mean - rest) * rstd);
        }
    }
    sum = warp_sum(sum);
    along = warp_sum(along);
    if (threadIdx.x % 32) return;
    sums[at] = along;
    sums[channels + at] = sum;
}

// dx = rstd (g − mean(g) − x̂ mean(g x̂)) with g = dy · weight, a block a row; the means come from sums.
extern "C" __global__ void __launch_bounds__(256) group_norm_backward(
    const T *dy, const T *x, const float *statistics, const float *weight, const float *sums, T *dx, long long rows,
    long long C, long long each, long long S
) {
    long long row = blockIdx.x, D = each * S;
    int positions = S, first = row % (C / each) * each;
    float middle = 0.0f, along = 0.0f;
    for (long long c = threadIdx.x; c < each; c += BLOCK) {
        along += weight[first + c] * sums[row * each + c];
        middle += weight[first + c] * sums[rows * each + row * each + c];
    }
    along = block_sum(along) / D;
    middle = block_sum(middle) / D;
    float rstd = statistics[row], mean = statistics[rows + row], rest = statistics[2 * rows + row];
    for (long long i = threadIdx.x * PACK; i < D; i += BLOCK * PACK) {
        float w = weight[first + (unsigned int)i / positions], gradients[PACK], numbers[PACK];
        load_pack<PACK>(gradients, dy + row * D + i);
        load_pack<PACK>(numbers, x + row * D + i);
        for (int j = 0; j < PACK; j++) {
            gradients[j] = (gradients[j] * w - middle - (numbers[j] - mean - rest) * rstd * along) * rstd;
        }
        store_pack<PACK>(dx + row * D + i, gradients);
    }
}
