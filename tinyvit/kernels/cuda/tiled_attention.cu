// What a tile of scores needs between two products; see tiled_attention.py. A warp has a row of the tile: `columns`
// numbers, and memory up to the next pack of four behind them. Rows start `stride` numbers apart, `rows_of_head` of them
// for each sample and head; what there is of each query lies in an array of `tokens` numbers for each sample and head.
// Scores are float; what they become is multiplied by cuBLAS as T, where T is float in the same place.

constexpr int EACH = 4;                      // numbers that a thread loads at once
constexpr float LOWEST = -3.402823466e+38f;  // and not −∞: where a whole tile is masked, −∞ − (−∞) would be no number

__device__ inline long long row_of_warp() { return ((long long)blockIdx.x * blockDim.x + threadIdx.x) / 32; }

// Scores become exp(scores − largest), and what was summed so far is scaled down to the larger of the old and the new
// largest score. `first` says that there is nothing yet.
extern "C" __global__ void __launch_bounds__(256) tiled_forward(
    const float *scores, T *exps, float *largest, float *total, float *heads, long long rows, long long columns,
    long long stride, long long rows_of_head, long long tokens, long long width, long long first
) {
    long long row = row_of_warp();
    if (row >= rows) return;
    long long query = row / rows_of_head * tokens + row % rows_of_head;
    int lane = threadIdx.x % 32;
    float before = first ? LOWEST : largest[query], now = before, sum = 0.0f, numbers[EACH];
    for (long long i = lane * EACH; i < columns; i += 32 * EACH) {
        load_pack<EACH>(numbers, scores + row * stride + i);
        for (int j = 0; j < EACH; j++) now = i + j < columns ? fmaxf(now, numbers[j]) : now;
    }
    now = warp_max(now);
    for (long long i = lane * EACH; i < columns; i += 32 * EACH) {
        load_pack<EACH>(numbers, scores + row * stride + i);
        for (int j = 0; j < EACH; j++) {
            numbers[j] = i + j < columns ? expf(numbers[j] - now) : 0.0f;
            sum += numbers[j];
        }
        store_pack<EACH>(exps + row * stride + i, numbers);
    }
    sum = warp_sum(sum);
    float scaled_down = expf(before - now);
    if (lane == 0) {
        largest[query] = now;
        total[query] = first ? sum : total[query] * scaled_down + sum;
    }
    if (first || scaled_down == 1.0f) return;
    for (long long i = lane; i < width; i += 32) heads[row * width + i] *= scaled_down;
}

// y = heads / total. A row of y starts at its sample's, head's and token's stride.
extern "C" __global__ void __launch_bounds__(256) tiled_heads(
    const float *heads, const float *total, T *y, long long rows, long long width, long long rows_of_head,
    long long tokens, long long num_heads, long long of_sample, long long of_head, long long of_token
) {
    long long row = row_of_warp();
    if (row >= rows) return;
    long long head = row / rows_of_head, token = row % rows_of_head;
    float share = 1.0f / total[head * tokens + token];
    y += head / num_heads * of_sample + head % num_heads * of_head + token * of_token;
    for (long long i = threadIdx.x % 32; i < width; i += 32) store(y + i, heads[row * width + i] * share);
}

// sums = Σ dy y over the width of a head, for every query of every sample and head.
extern "C" __global__ void __launch_bounds__(256) tiled_sums(
    const T *dy, const T *y, float *sums, long long rows, long long width, long long tokens, long long num_heads,
    long long dy_of_sample, long long dy_of_head, long long dy_of_token, long long of_sample, long long of_head,
    long long of_token
) {
    long long row = row_of_warp();
    if (row >= rows) return;
    long long sample = row / tokens / num_heads, head = row / tokens % num_heads, token = row % tokens;
    dy += sample * dy_of_sample + head * dy_of_head + token * dy_of_token;
    y += sample * of_sample + head * of_head + token * of_token;
    float sum = 0.0f;
    for (long long i = threadIdx.x % 32; i < width; i += 32) sum += to_float(dy[i]) * to_float(y[i]);
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) sums[row] = sum;
}

// probs = exp(scores − largest) / total and dscores = probs (dprobs − sums).
extern "C" __global__ void __launch_bounds__(256) tiled_backward(
    const float *scores, const float *dprobs, T *probs, T *dscores, const float *largest, const float *total,
    const float *sums, long long rows, long long columns, long long stride, long long rows_of_head, long long tokens
) {
    long long row = row_of_warp();
    if (row >= rows) return;
    long long query = row / rows_of_head * tokens + row % rows_of_head;
    float most = largest[query], share = 1.0f / total[query], along = sums[query], p[EACH], d[EACH];
    for (long long i = threadIdx.x % 32 * EACH; i < columns; i += 32 * EACH) {
        load_pack<EACH>(p, scores + row * stride + i);
        load_pack<EACH>(d, dprobs + row * stride + i);
        for (int j = 0; j < EACH; j++) {
            p[j] = i + j < columns ? expf(p[j] - most) * share : 0.0f;
            d[j] = i + j < columns ? p[j] * (d[j] - along) : 0.0f;
        }
        store_pack<EACH>(probs + row * stride + i, p);
        store_pack<EACH>(dscores + row * stride + i, d);
    }
}
