// What a tile of scores needs between two products; see tiled_attention.py. A warp has a row of the tile: `columns`
// numbers, and memory up to the next pack of four after them. Rows start `stride` numbers apart, `rows_of_head` of them
// for each sample and head; the statistics of the queries lie in arrays of `tokens` numbers for each sample and head.
// Scores are float; what they become is multiplied by cuBLAS as T, in place where T is float.
//
// A bias is float; the entry for the score of `column` in query `row` of a head of a sample of the tile lies at these
// multiples of its strides `of_sample`, `of_head`, `of_query` and `of_column`; 0 along what it is broadcast over.

constexpr int EACH = 4;                      // numbers that a thread loads at once
constexpr float LOWEST = -3.402823466e+38f;  // and not −∞: where a whole tile is masked, −∞ − (−∞) would be NaN

__device__ inline long long row_of_warp() { return ((long long)blockIdx.x * blockDim.x + threadIdx.x) / 32; }

__device__ inline const float *bias_of_row(
    const float *bias, long long row, long long rows_of_head, long long num_heads, long long of_sample, long long of_head,
    long long of_query
) {
    long long head = row / rows_of_head;
    return bias ? bias + head / num_heads * of_sample + head % num_heads * of_head + row % rows_of_head * of_query : bias;
}

// Scores become exp(scores + bias − largest), and what was summed so far is scaled down to the new running maximum.
// `first` says that nothing was summed yet.
extern "C" __global__ void __launch_bounds__(256) tiled_forward(
    const float *scores, T *exps, const float *bias, long long of_sample, long long of_head, long long of_query,
    long long of_column, long long num_heads, float *largest, float *total, float *heads, long long rows,
    long long columns, long long stride, long long rows_of_head, long long tokens, long long width, long long first
) {
    long long row = row_of_warp();
    if (row >= rows) return;
    long long query = row / rows_of_head * tokens + row % rows_of_head;
    bias = bias_of_row(bias, row, rows_of_head, num_heads, of_sample, of_head, of_query);
    int lane = threadIdx.x % 32;
    float before = first ? LOWEST : largest[query], now = before, sum = 0.0f, numbers[EACH];
    for (long long i = lane * EACH; i < columns; i += 32 * EACH) {
        load_pack<EACH>(numbers, scores + row * stride + i);
        for (int j = 0; j < EACH && i + j < columns; j++) {
            now = fmaxf(now, bias ? numbers[j] + bias[(i + j) * of_column] : numbers[j]);
        }
    }
    now = warp_max(now);
    for (long long i = lane * EACH; i < columns; i += 32 * EACH) {
        load_pack<EACH>(numbers, scores + row * stride + i);
        for (int j = 0; j < EACH; j++) {
            bool inside = i + j < columns;
            float score = inside && bias ? numbers[j] + bias[(i + j) * of_column] : numbers[j];
            numbers[j] = inside ? expf(score - now) : 0.0f;
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

// y = heads / total. A row of y starts at its sample's, head's and token's stride. The total of a query that saw no key
// becomes 1, so that its heads and probabilities are 0.
extern "C" __global__ void __launch_bounds__(256) tiled_heads(
    const float *heads, float *total, T *y, long long rows, long long width, long long rows_of_head,
    long long tokens, long long num_heads, long long of_sample, long long of_head, long long of_token
) {
    long long row = row_of_warp();
    if (row >= rows) return;
    long long head = row / rows_of_head, token = row % rows_of_head;
    float sum = total[head * tokens + token];
    float inverse = sum == 0.0f ? 1.0f : 1.0f / sum;
    __syncwarp();  // all have read
    if (sum == 0.0f && threadIdx.x % 32 == 0) total[head * tokens + token] = 1.0f;
    y += head / num_heads * of_sample + head % num_heads * of_head + token * of_token;
    for (long long i = threadIdx.x % 32; i < width; i += 32) store(y + i, heads[row * width + i] * inverse);
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

// probs = exp(scores + bias − largest) / total and dscores = probs (dprobs − sums).
extern "C" __global__ void __launch_bounds__(256) tiled_backward(
    const float *scores, const float *dprobs, T *probs, T *dscores, const float *bias, long long of_sample,
    long long of_head, long long of_query, long long of_column, long long num_heads, const float *largest,
    const float *total, const float *sums, long long rows, long long columns, long long stride, long long rows_of_head, long long tokens
) {
    long long row = row_of_warp();
    if (row >= rows) return;
    long long query = row / rows_of_head * tokens + row % rows_of_head;
    bias = bias_of_row(bias, row, rows_of_head, num_heads, of_sample, of_head, of_query);
    float row_largest = largest[query], inverse = 1.0f / total[query], dot = sums[query], p[EACH], d[EACH];
    for (long long i = threadIdx.x % 32 * EACH; i < columns; i += 32 * EACH) {
        load_pack<EACH>(p, scores + row * stride + i);
        load_pack<EACH>(d, dprobs + row * stride + i);
        for (int j = 0; j < EACH; j++) {
            bool inside = i + j < columns;
            float score = inside && bias ? p[j] + bias[(i + j) * of_column] : p[j];
            p[j] = inside ? expf(score - row_largest) * inverse : 0.0f;
            d[j] = inside ? p[j] * (d[j] - dot) : 0.0f;
        }
        store_pack<EACH>(probs + row * stride + i, p);
        store_pack<EACH>(dscores + row * stride + i, d);
    }
}
