// Attention on tensor cores, in bfloat16 and float16; from Ampere on. The scores are never written to memory.
//
// A warp takes a strip of 16 rows of a head, and multiplies them with the rows of a tile that its block loads to shared
// memory: queries with KV tiles in the forward and for dq, keys with tiles of queries and dy for dk and dv. A block has
// the strips of one head, or of several heads where there are few tokens. This is how 65 queries and keys are divided:
//
//            keys 0-15  16-31  32-47  48-63  64, 15 empty       in 16 × 16 scores lane 4g + t of the warp has
//    warp 0  ........   ....   ....   ....   ....                           columns 2t, 2t+1   2t+8, 2t+9
//    warp 1  queries 16-31                                        row g        c[0][0], [1]     c[1][0], [1]
//      ...                                                        row g+8      c[0][2], [3]     c[1][2], [3]
//    warp 4  query 64, 15 empty
//
// They stay in these registers: four lanes share a row, so its maximum and sum take two shuffles. Rounded to T, the same
// registers are the left operand of the next product (nvidia.cuh), probs with the values or dscores with the keys.
//
// HEAD   width of a head, a multiple of 8; products are over 16 numbers, so a tile of heads 24 wide has 8 zeros in each row
// Of each array (B, H, N, HEAD) the last axis is contiguous; the strides of the others are given in numbers.
//
// The scale comes in two factors: `power`, by which the rows of a strip are multiplied exactly before they are multiplied
// with others, and `rest`, which isn't negative.

constexpr int ROWS = 80;                 // of a tile, all heads of the block together; also in tensor_attention.py
constexpr int GROUPS = ROWS / 16;
constexpr int STEPS = (HEAD + 15) / 16;  // products along the width of a head
constexpr int PITCH = 16 * STEPS + 8;    // numbers from row to row of a tile: the 8 rows that are read at once share no bank
constexpr float LOWEST = -3.402823466e38f;  // and not -inf, as -inf - (-inf) is NaN
constexpr float LOG2_E = 1.442695041f;

// Parameters that describe an array, and what they are inside of a kernel.
#define ARRAY(type, name) type *name, long long name##_sample, long long name##_head, long long name##_row
#define OF_HEAD(name, p) (name + p.sample * name##_sample + p.head * name##_head)

// Which rows a warp has: 16 from `first` on of head `head`, whose rows in a tile start at row `in_tile`. `none`: there are
// no such rows, as the number of heads isn't a multiple of the heads per block, or that of rows one of the rows per block.
struct Strip {
    long long sample, head, first_head;
    int first, in_tile;
    bool none;
};

// `strips` of each of `together` heads are a block's; `length` rows of a tile belong to each.
__device__ inline Strip strip_of(long long heads, int rows, int together, int strips, int length) {
    int blocks = (rows + 16 * strips - 1) / (16 * strips), block = blockIdx.x, warp = threadIdx.x / 32;
    int groups = (heads + together - 1) / together, group = warp / strips;
    Strip p;
    p.sample = block / blocks / groups;
    p.first_head = (long long)(block / blocks % groups) * together;
    p.head = p.first_head + group;
    p.first = (block % blocks * strips + warp % strips) * 16;
    p.in_tile = group * length;
    p.none = p.head >= heads || p.first >= rows;
    return p;
}

// -- fragments --------------------------------------------------------------------------------------------------------

__device__ inline unsigned int pair_of(bfloat16, float x, float y) { return bfloat16_bits_of_floats(x, y); }
__device__ inline unsigned int pair_of(float16, float x, float y) { return half_bits_of_floats(x, y); }

__device__ inline unsigned int times(unsigned int pair, float factor) {
    T low = {(unsigned short)pair}, high = {(unsigned short)(pair >> 16)};
    return pair_of(T(), to_float(low) * factor, to_float(high) * factor);
}

// Lane 4g + t has of both rows g and g + 8 the columns 2t and 2t + 1: `row_of` and `column_of` of number i of a c.
__device__ inline int row_of(int i) { return threadIdx.x % 32 / 4 + i / 2 * 8; }
__device__ inline int column_of(int i) { return threadIdx.x % 4 * 2 + i % 2; }

// A strip as left operand, from global memory; zeros for rows that there aren't.
__device__ inline void load_strip(unsigned int (&a)[STEPS][4], const T *from, long long row, int first, int rows) {
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < 4; i++) {
            int r = first + row_of(i % 2 * 2), column = step * 16 + i / 2 * 8 + column_of(0);
            bool there = r < rows && step * 16 + i / 2 * 8 < HEAD;
            a[step][i] = there ? *reinterpret_cast<const unsigned int *>(from + r * row + column) : 0;
        }
    }
}

// The same from 16 rows of a tile.
__device__ inline void load_strip(unsigned int (&a)[STEPS][4], const T *rows) {
    int lane = threadIdx.x % 32;
    for (int step = 0; step < STEPS; step++) load_matrices(a[step], rows + lane % 16 * PITCH + step * 16 + lane / 16 * 8);
}

__device__ inline void scale_strip(unsigned int (&a)[STEPS][4], float factor) {
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < 4; i++) a[step][i] = times(a[step][i], factor);
    }
}

// c = a rowsᵀ: the dot products of a strip with 16 rows of a tile.
__device__ inline void dot_products(float (&c)[2][4], const unsigned int (&a)[STEPS][4], const T *rows) {
    int lane = threadIdx.x % 32;
    for (int i = 0; i < 4; i++) c[0][i] = c[1][i] = 0.0f;
    for (int step = 0; step < STEPS; step++) {
        unsigned int b[4];
        load_matrices(b, rows + (lane / 16 * 8 + lane % 8) * PITCH + step * 16 + lane / 8 % 2 * 8);
        multiply(T(), c[0], a[step], b[0], b[1]);
        multiply(T(), c[1], a[step], b[2], b[3]);
    }
}

// sum += weights rows: 16 rows of a tile, each with its weight for each row of the strip.
__device__ inline void add_weighted(float (&sum)[2 * STEPS][4], const float (&weights)[2][4], const T *rows) {
    int lane = threadIdx.x % 32;
    unsigned int a[4], b[4];
    for (int i = 0; i < 4; i++) a[i] = pair_of(T(), weights[i / 2][i % 2 * 2], weights[i / 2][i % 2 * 2 + 1]);
    for (int step = 0; step < STEPS; step++) {
        load_transposed_matrices(b, rows + lane % 16 * PITCH + step * 16 + lane / 16 * 8);
        multiply(T(), sum[2 * step], a, b[0], b[1]);
        if (step * 16 + 8 < HEAD) multiply(T(), sum[2 * step + 1], a, b[2], b[3]);
    }
}

// Writes what was summed, each row times its factor, to those rows that there are.
__device__ inline void store_strip(
    T *where, long long row, const Strip &p, int rows, const float (&sum)[2 * STEPS][4], float factor, float factor_below
) {
    for (int half = 0; half < 2; half++) {
        int r = p.first + row_of(2 * half);
        if (r >= rows) continue;
        float f = half ? factor_below : factor;
        for (int step = 0; step < HEAD / 8; step++) {
            *reinterpret_cast<unsigned int *>(where + r * row + step * 8 + column_of(0)) =
                pair_of(T(), sum[step][2 * half] * f, sum[step][2 * half + 1] * f);
        }
    }
}

// Over the four lanes that share a row.
__device__ inline float row_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(ALL, x, 1));
    return fmaxf(x, __shfl_xor_sync(ALL, x, 2));
}
__device__ inline float row_sum(float x) {
    x += __shfl_xor_sync(ALL, x, 1);
    return x + __shfl_xor_sync(ALL, x, 2);
}

// -- tiles ------------------------------------------------------------------------------------------------------------

struct alignas(16) Eight { unsigned int bits[4]; };  // numbers of type T

// Loads rows `first` to `first + count` of each of the block's heads to shared memory, a head's `length` rows after the
// other's; by the whole block. Rows of zeros fill the last 16. `from` is the first of these heads.
__device__ inline void load_tile(
    T *tile, const T *from, long long of_head, long long of_row, const Strip &p, long long heads, int together, int length,
    int first, int count
) {
    constexpr int PARTS = 2 * STEPS;
    int padded = (count + 15) / 16 * 16;
    for (int group = 0; group < together && p.first_head + group < heads; group++) {
        for (int i = threadIdx.x; i < padded * PARTS; i += blockDim.x) {
            int row = i / PARTS, part = i % PARTS * 8;
            Eight numbers = {};
            if (row < count && part < HEAD) {
                numbers = *reinterpret_cast<const Eight *>(from + group * of_head + (first + row) * of_row + part);
            }
            *reinterpret_cast<Eight *>(tile + (group * length + row) * PITCH + part) = numbers;
        }
    }
}
#define TILE_OF(name, first, count) \
    name + p.sample * name##_sample + p.first_head * name##_head, name##_head, name##_row, p, heads, together, length, first, count

// The weight of a key from the dot product with it. What a row's weights are relative to is kept in the units of the
// exponent of 2: `largest` is the largest score times log2(e), and factor = rest · log2(e). So a product is rounded once
// for the row, and not for each score.
__device__ inline float weight_of(float product, float factor, float largest) {
    return exp2f(fmaf(product, factor, -largest));
}

// -- kernels ----------------------------------------------------------------------------------------------------------

// heads = softmax(q kᵀ · scale) v, and of each query `largest` and 1 / Σ weights, (B, H, Nq).
extern "C" __global__ void __launch_bounds__(160, HEAD > 32 ? 2 : 3) tensor_forward(
    ARRAY(const T, q), ARRAY(const T, k), ARRAY(const T, v), ARRAY(T, y), float *all_largest,
    float *all_inverse, long long heads, long long num_queries, long long num_keys, long long heads_per_block,
    long long strips, long long rows_per_head, float power, float rest
) {
    alignas(16) __shared__ T key_tile[ROWS * PITCH], value_tile[ROWS * PITCH];
    int queries = num_queries, keys = num_keys, together = heads_per_block, length = rows_per_head;
    Strip p = strip_of(heads, queries, together, strips, length);
    unsigned int query[STEPS][4] = {};
    float sum[2 * STEPS][4] = {}, total[2] = {}, largest[2] = {LOWEST, LOWEST}, factor = rest * LOG2_E;
    if (!p.none) load_strip(query, OF_HEAD(q, p), q_row, p.first, queries);
    scale_strip(query, power);
    for (int first = 0; first < keys; first += length) {
        int count = min(length, keys - first);
        __syncthreads();  // the tile before may still be in use
        load_tile(key_tile, TILE_OF(k, first, count));
        load_tile(value_tile, TILE_OF(v, first, count));
        __syncthreads();
        if (p.none) continue;
        float score[GROUPS][2][4], now[2] = {LOWEST, LOWEST};
        for (int group = 0; group < GROUPS; group++) {
            if (group * 16 >= count) break;
            dot_products(score[group], query, key_tile + (p.in_tile + group * 16) * PITCH);
            for (int i = 0; i < 8; i++) {
                bool there = group * 16 + i / 4 * 8 + column_of(i) < count;
                if (there) now[i % 4 / 2] = fmaxf(now[i % 4 / 2], score[group][i / 4][i % 4]);
            }
        }
        for (int half = 0; half < 2; half++) {  // scale what was summed so far down to the new maximum
            float before = largest[half];
            largest[half] = fmaxf(before, row_max(now[half]) * factor);
            float down = exp2f(before - largest[half]);
            total[half] *= down;
            for (int step = 0; step < 2 * STEPS; step++) {
                sum[step][2 * half] *= down;
                sum[step][2 * half + 1] *= down;
            }
        }
        for (int group = 0; group < GROUPS; group++) {
            if (group * 16 >= count) break;
            for (int i = 0; i < 8; i++) {
                int half = i % 4 / 2;
                float &x = score[group][i / 4][i % 4];
                x = group * 16 + i / 4 * 8 + column_of(i) < count ? weight_of(x, factor, largest[half]) : 0.0f;
                total[half] += x;
            }
            add_weighted(sum, score[group], value_tile + (p.in_tile + group * 16) * PITCH);
        }
    }
    if (p.none) return;
    float inverse[2];
    for (int half = 0; half < 2; half++) {
        total[half] = row_sum(total[half]);
        inverse[half] = total[half] == 0.0f ? 0.0f : 1.0f / total[half];  // zeros for a query that sees no key
        int r = p.first + row_of(2 * half);
        if (r >= queries || threadIdx.x % 4) continue;
        long long number = (p.sample * heads + p.head) * queries + r;
        all_largest[number] = largest[half];
        all_inverse[number] = inverse[half];
    }
    store_strip(OF_HEAD(y, p), y_row, p, queries, sum, inverse[0], inverse[1]);
}

// What the backward needs of each query of a strip: `largest`, 1 / Σ weights, and Σ dprobs probs, called dot.
struct Rows { float largest[2], inverse[2], dot[2]; };

__device__ inline void load_rows(
    Rows &rows, const float *all_largest, const float *all_inverse, const Strip &p, long long heads, int queries
) {
    for (int half = 0; half < 2; half++) {
        int r = p.first + row_of(2 * half);
        bool there = !p.none && r < queries;
        long long number = (p.sample * heads + p.head) * queries + r;
        rows.largest[half] = there ? all_largest[number] : 0.0f;
        rows.inverse[half] = there ? all_inverse[number] : 0.0f;
        rows.dot[half] = 0.0f;
    }
}

// probs and dprobs = dy vᵀ of a strip of queries with 16 keys of a tile, of which there are `count`; by a warp.
__device__ inline void probs_of_group(
    float (&probs)[2][4], float (&dprobs)[2][4], const unsigned int (&query)[STEPS][4],
    const unsigned int (&dhead)[STEPS][4], const T *keys, const T *values, const Rows &rows, int count, float rest
) {
    dot_products(probs, query, keys);
    dot_products(dprobs, dhead, values);
    for (int i = 0; i < 8; i++) {
        int half = i % 4 / 2;
        float &x = probs[i / 4][i % 4];
        bool there = i / 4 * 8 + column_of(i) < count;
        x = there ? weight_of(x, rest * LOG2_E, rows.largest[half]) * rows.inverse[half] : 0.0f;
    }
}

__device__ inline void add_dots(float (&dot)[2], const float (&probs)[2][4], const float (&dprobs)[2][4]) {
    for (int i = 0; i < 8; i++) dot[i % 4 / 2] += probs[i / 4][i % 4] * dprobs[i / 4][i % 4];
}

// dscores = probs (dprobs − dot) takes the place of dprobs, and sum += dscores keys.
__device__ inline void add_dq(
    float (&sum)[2 * STEPS][4], const float (&probs)[2][4], float (&dprobs)[2][4], const T *key_rows,
    const float (&dot)[2]
) {
    for (int i = 0; i < 8; i++) {
        float &x = dprobs[i / 4][i % 4];
        x = probs[i / 4][i % 4] * (x - dot[i % 4 / 2]);
    }
    add_weighted(sum, dprobs, key_rows);
}

// Adds to dk and dv of a strip of keys what `count` queries of a tile give; by a warp. The statistics of the queries lie in
// shared memory.
__device__ inline void add_dk_dv(
    float (&dk)[2 * STEPS][4], float (&dv)[2 * STEPS][4], const unsigned int (&key)[STEPS][4],
    const unsigned int (&value)[STEPS][4], const T *queries, const T *dheads, const float *largest, const float *inverse,
    const float *dot, int count, float rest
) {
    for (int group = 0; group * 16 < count; group++) {
        float probs[2][4], dscores[2][4];
        dot_products(probs, key, queries + group * 16 * PITCH);
        dot_products(dscores, value, dheads + group * 16 * PITCH);
        for (int i = 0; i < 8; i++) {
            int query = group * 16 + i / 4 * 8 + column_of(i);
            float &x = probs[i / 4][i % 4], &d = dscores[i / 4][i % 4];
            x = query < count ? weight_of(x, rest * LOG2_E, largest[query]) * inverse[query] : 0.0f;
            d = query < count ? x * (d - dot[query]) : 0.0f;
        }
        add_weighted(dv, probs, dheads + group * 16 * PITCH);
        add_weighted(dk, dscores, queries + group * 16 * PITCH);
    }
}

// All gradients where a head's rows fit into one tile; a block has whole heads. First its warps have strips of queries, for
// dq, then strips of keys, for dk and dv.
extern "C" __global__ void __launch_bounds__(160, HEAD > 32 ? 2 : 3) tensor_backward(
    ARRAY(const T, q), ARRAY(const T, k), ARRAY(const T, v), ARRAY(const T, dy), ARRAY(T, dq), ARRAY(T, dk),
    ARRAY(T, dv), const float *all_largest, const float *all_inverse, long long heads, long long num_queries,
    long long num_keys, long long heads_per_block, long long strips, long long rows_per_head, float power, float rest
) {
    alignas(16) __shared__ T query_tile[ROWS * PITCH], key_tile[ROWS * PITCH], value_tile[ROWS * PITCH], dy_tile[ROWS * PITCH];
    __shared__ float largest[ROWS], inverse[ROWS], dot[ROWS];
    int queries = num_queries, keys = num_keys, together = heads_per_block, length = rows_per_head;
    Strip p = strip_of(heads, length, together, strips, length);
    Rows rows;
    load_rows(rows, all_largest, all_inverse, p, heads, queries);
    load_tile(query_tile, TILE_OF(q, 0, queries));
    load_tile(key_tile, TILE_OF(k, 0, keys));
    load_tile(value_tile, TILE_OF(v, 0, keys));
    load_tile(dy_tile, TILE_OF(dy, 0, queries));
    __syncthreads();
    int tile = p.in_tile * PITCH, strip = tile + p.first * PITCH;
    if (!p.none && p.first < queries) {
        unsigned int query[STEPS][4], dhead[STEPS][4];
        float probs[GROUPS][2][4], dprobs[GROUPS][2][4], sum[2 * STEPS][4] = {};
        load_strip(query, query_tile + strip);
        load_strip(dhead, dy_tile + strip);
        scale_strip(query, power);
        for (int group = 0; group < GROUPS; group++) {
            int first = group * 16, of_group = tile + first * PITCH;
            if (first >= keys) break;
            probs_of_group(
                probs[group], dprobs[group], query, dhead, key_tile + of_group, value_tile + of_group, rows,
                keys - first, rest
            );
            add_dots(rows.dot, probs[group], dprobs[group]);
        }
        for (int half = 0; half < 2; half++) {
            rows.dot[half] = row_sum(rows.dot[half]);
            int number = p.in_tile + p.first + row_of(2 * half);
            if (threadIdx.x % 4) continue;
            largest[number] = rows.largest[half];
            inverse[number] = rows.inverse[half];
            dot[number] = rows.dot[half];
        }
        __syncwarp();  // products need the whole warp together
        for (int group = 0; group < GROUPS; group++) {
            if (group * 16 >= keys) break;
            add_dq(sum, probs[group], dprobs[group], key_tile + tile + group * 16 * PITCH, rows.dot);
        }
        store_strip(OF_HEAD(dq, p), dq_row, p, queries, sum, power * rest, power * rest);
    }
    __syncthreads();
    if (p.none || p.first >= keys) return;
    unsigned int key[STEPS][4], value[STEPS][4];
    float key_sum[2 * STEPS][4] = {}, value_sum[2 * STEPS][4] = {};
    load_strip(key, key_tile + strip);
    load_strip(value, value_tile + strip);
    scale_strip(key, power);
    add_dk_dv(
        key_sum, value_sum, key, value, query_tile + tile, dy_tile + tile, largest + p.in_tile, inverse + p.in_tile,
        dot + p.in_tile, queries, rest
    );
    store_strip(OF_HEAD(dk, p), dk_row, p, keys, key_sum, power * rest, power * rest);
    store_strip(OF_HEAD(dv, p), dv_row, p, keys, value_sum, 1.0f, 1.0f);
}

// dq, and of each query its dot (B, H, Nq), where a head's rows take several tiles. The keys are read twice, as dot is known
// only after the last of them.
extern "C" __global__ void __launch_bounds__(160, HEAD > 32 ? 2 : 3) tensor_dq(
    ARRAY(const T, q), ARRAY(const T, k), ARRAY(const T, v), ARRAY(const T, dy), ARRAY(T, dq),
    const float *all_largest, const float *all_inverse, float *dots, long long heads, long long num_queries,
    long long num_keys, long long heads_per_block, long long strips, long long rows_per_head, float power, float rest
) {
    alignas(16) __shared__ T key_tile[ROWS * PITCH], value_tile[ROWS * PITCH];
    int queries = num_queries, keys = num_keys, together = heads_per_block, length = rows_per_head;
    Strip p = strip_of(heads, queries, together, strips, length);
    Rows rows;
    unsigned int query[STEPS][4] = {}, dhead[STEPS][4] = {};
    float sum[2 * STEPS][4] = {};
    load_rows(rows, all_largest, all_inverse, p, heads, queries);
    if (!p.none) {
        load_strip(query, OF_HEAD(q, p), q_row, p.first, queries);
        load_strip(dhead, OF_HEAD(dy, p), dy_row, p.first, queries);
    }
    scale_strip(query, power);
    int tile = p.in_tile * PITCH;
    for (int pass = 0; pass < 2; pass++) {
        for (int first = 0; first < keys; first += length) {
            int count = min(length, keys - first);
            __syncthreads();  // the tile before may still be in use
            load_tile(key_tile, TILE_OF(k, first, count));
            load_tile(value_tile, TILE_OF(v, first, count));
            __syncthreads();
            for (int of_group = 0; of_group < count && !p.none; of_group += 16) {
                const T *key_rows = key_tile + tile + of_group * PITCH, *value_rows = value_tile + tile + of_group * PITCH;
                float probs[2][4], dprobs[2][4];
                probs_of_group(probs, dprobs, query, dhead, key_rows, value_rows, rows, count - of_group, rest);
                if (pass == 0) add_dots(rows.dot, probs, dprobs);
                else add_dq(sum, probs, dprobs, key_rows, rows.dot);
            }
        }
        for (int half = 0; half < 2 && pass == 0; half++) rows.dot[half] = row_sum(rows.dot[half]);
    }
    if (p.none) return;
    store_strip(OF_HEAD(dq, p), dq_row, p, queries, sum, power * rest, power * rest);
    for (int half = 0; half < 2; half++) {
        int r = p.first + row_of(2 * half);
        if (r < queries && threadIdx.x % 4 == 0) dots[(p.sample * heads + p.head) * queries + r] = rows.dot[half];
    }
}

// dk = Σ dscores q · scale and dv = Σ probs dy over the queries, tile by tile.
extern "C" __global__ void __launch_bounds__(160, HEAD > 32 ? 2 : 3) tensor_dk_dv(
    ARRAY(const T, q), ARRAY(const T, k), ARRAY(const T, v), ARRAY(const T, dy), ARRAY(T, dk), ARRAY(T, dv),
    const float *all_largest, const float *all_inverse, const float *dots, long long heads, long long num_queries,
    long long num_keys, long long heads_per_block, long long strips, long long rows_per_head, float power, float rest
) {
    alignas(16) __shared__ T query_tile[ROWS * PITCH], dy_tile[ROWS * PITCH];
    __shared__ float largest[ROWS], inverse[ROWS], dot[ROWS];
    int queries = num_queries, keys = num_keys, together = heads_per_block, length = rows_per_head;
    Strip p = strip_of(heads, keys, together, strips, length);
    unsigned int key[STEPS][4] = {}, value[STEPS][4] = {};
    float key_sum[2 * STEPS][4] = {}, value_sum[2 * STEPS][4] = {};
    if (!p.none) {
        load_strip(key, OF_HEAD(k, p), k_row, p.first, keys);
        load_strip(value, OF_HEAD(v, p), v_row, p.first, keys);
    }
    scale_strip(key, power);
    for (int first = 0; first < queries; first += length) {
        int count = min(length, queries - first);
        __syncthreads();  // the tile before may still be in use
        load_tile(query_tile, TILE_OF(q, first, count));
        load_tile(dy_tile, TILE_OF(dy, first, count));
        for (int i = threadIdx.x; i < together * length; i += blockDim.x) {
            long long head = p.first_head + i / length;
            if (head >= heads || i % length >= count) continue;
            long long number = (p.sample * heads + head) * queries + first + i % length;
            largest[i] = all_largest[number];
            inverse[i] = all_inverse[number];
            dot[i] = dots[number];
        }
        __syncthreads();
        if (p.none) continue;
        add_dk_dv(
            key_sum, value_sum, key, value, query_tile + p.in_tile * PITCH, dy_tile + p.in_tile * PITCH, largest + p.in_tile,
            inverse + p.in_tile, dot + p.in_tile, count, rest
        );
    }
    if (p.none) return;
    store_strip(OF_HEAD(dk, p), dk_row, p, keys, key_sum, power * rest, power * rest);
    store_strip(OF_HEAD(dv, p), dv_row, p, keys, value_sum, 1.0f, 1.0f);
}
