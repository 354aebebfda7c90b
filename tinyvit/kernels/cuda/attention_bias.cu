// The gradient of attention's bias, summed in an order that is always the same.

// dbias = dscores summed along what the bias is broadcast over, `kept_heads` and so on being 1 there, in `segments` parts
// that are left to be added up: (segments, kept_samples, kept_heads, kept_queries, kept_columns) in double precision.
//
// A block has 32 columns of a row of dbias in one segment. Each of its warps sums every eighth row, always in this order.
extern "C" __global__ void __launch_bounds__(256) attention_dbias(
    const T *dscores, double *dbias, long long samples, long long heads, long long queries, long long columns,
    long long stride, long long kept_samples, long long kept_heads, long long kept_queries, long long kept_columns,
    long long segments
) {
    constexpr int WARPS = 8;
    __shared__ double sums[WARPS][32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    long long groups = (kept_columns + 31) / 32, rows = kept_samples * kept_heads * kept_queries, block = blockIdx.x;
    long long group = block % groups, row = block / groups % rows, segment = block / groups / rows;
    // Of each axis the first index that goes into this row, and how many follow it.
    long long sample = row / kept_queries / kept_heads, head = row / kept_queries % kept_heads, query = row % kept_queries;
    long long of_heads = heads / kept_heads, of_queries = queries / kept_queries;
    long long repeats = samples / kept_samples * of_heads * of_queries;
    bool columns_kept = kept_columns == columns;
    double sum = 0.0;
    for (long long i = segment * WARPS + warp; i < repeats; i += segments * WARPS) {
        long long of_head = (sample + i / of_queries / of_heads) * heads + head + i / of_queries % of_heads;
        const T *numbers = dscores + (of_head * queries + query + i % of_queries) * stride;
        long long first = columns_kept ? group * 32 + lane : lane, end = columns_kept ? min(columns, first + 1) : columns;
        for (long long j = first; j < end; j += 32) sum += to_float(numbers[j]);
    }
    sums[warp][lane] = sum;
    __syncthreads();
    if (warp > 0) return;
    for (int other = 1; other < WARPS; other++) sum += sums[other][lane];
    dbias += (segment * rows + row) * kept_columns;
    if (columns_kept) {
        if (group * 32 + lane < columns) dbias[group * 32 + lane] = sum;
        return;
    }
    sums[0][lane] = sum;
    __syncwarp();
    if (lane > 0) return;
    for (int other = 1; other < 32; other++) sum += sums[0][other];
    dbias[0] = sum;
}
