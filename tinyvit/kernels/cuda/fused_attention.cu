// Attention that never writes its scores: they live in registers, one at a time.
//
// A thread has a row or two of its own, queries in the forward and in dq, keys in dk and dv, and loops over all rows of
// the other kind, which its block loads into shared memory, a tile at a time. All threads of a warp read the same row.
// Reading it takes longer than what is computed with it for one row; hence two, where registers allow. A block has the
// rows of several heads of one sample, so that few threads of its last warp are idle.
//
// HEAD   width of a head
// BIAS   1 if a bias is added to the scores, else 0
// Of each array (B, H, N, HEAD) the last axis is contiguous; the strides of the others are given in numbers, as are all
// four of a bias, 0 along what it is broadcast over.
//
// The scale comes in two factors: `power`, a power of two by which rows are multiplied first, so that a score overflows
// only if it is too large itself, and `rest`, from 1 to 2.

constexpr int CAPACITY = 4096;                // numbers in each of the two tiles that a block keeps
constexpr int FORWARD = 2;                    // rows of a thread
constexpr int BACKWARD = HEAD == 16 ? 2 : 1;  // also in fused_attention.py
constexpr int WIDE = 16 / sizeof(T);          // numbers in 16 bytes
constexpr float LOWEST = -3.402823466e38f;    // and not −∞, as −∞ − (−∞) is NaN

struct Strides { long long sample, head, row; };
struct Bias { const float *numbers; long long sample, head, query, key; };

// Parameters that describe an array or the bias, and what they are inside of a kernel.
#define ARRAY(type, name) type *name, long long name##_sample, long long name##_head, long long name##_row
#define STRIDES(name) {name##_sample, name##_head, name##_row}
#define BIAS_PARAMETERS \
    const float *bias, long long b_sample, long long b_head, long long b_query, long long b_key
#define BIAS_HERE {bias, b_sample, b_head, b_query, b_key}

// What a thread works on: of head `head` the rows `row`, `row` + tile, … below `rows`; `none` if it has none.
struct Place {
    long long sample, head, row, rows, tile;
    int group;  // which of the block's heads
    bool none;
};

__device__ inline float bias_at(const Bias &bias, const Place &p, long long query, long long key) {
    return bias.numbers[p.sample * bias.sample + p.head * bias.head + query * bias.query + key * bias.key];
}

template <int EACH>
__device__ inline Place place_of(long long heads, long long rows, long long heads_per_block, long long tile) {
    long long groups = (heads + heads_per_block - 1) / heads_per_block, tiles = (rows + tile * EACH - 1) / (tile * EACH);
    long long block = blockIdx.x;
    long long first_row = block % tiles * tile * EACH, first_head = block / tiles % groups * heads_per_block;
    Place p;
    p.sample = block / (tiles * groups);
    p.group = threadIdx.x / tile;
    p.head = first_head + p.group;
    p.row = first_row + threadIdx.x % tile;
    p.rows = rows;
    p.tile = tile;
    p.none = p.group >= heads_per_block || p.head >= heads || p.row >= rows;
    return p;
}

__device__ inline bool has(const Place &p, int r) { return !p.none && p.row + r * p.tile < p.rows; }

__device__ inline long long at(const Place &p, const Strides &s, int r) {
    return p.sample * s.sample + p.head * s.head + (p.row + r * p.tile) * s.row;
}

// The rows of a thread, times a factor; rows that it doesn't have stay as they are.
template <int EACH> __device__ inline void load_rows(
    float (&rows)[EACH][HEAD], const T *from, Strides s, const Place &p, float factor
) {
    #pragma unroll
    for (int r = 0; r < EACH; r++) {
        if (!has(p, r)) continue;
        #pragma unroll
        for (int i = 0; i < HEAD; i += WIDE) {
            float part[WIDE];
            load_pack<WIDE>(part, from + at(p, s, r) + i);
            #pragma unroll
            for (int j = 0; j < WIDE; j++) rows[r][i + j] = part[j] * factor;
        }
    }
}

__device__ inline void store_row(T *where, const float (&row)[HEAD], float factor) {
    #pragma unroll
    for (int i = 0; i < HEAD; i += WIDE) {
        float part[WIDE];
        #pragma unroll
        for (int j = 0; j < WIDE; j++) part[j] = row[i + j] * factor;
        store_pack<WIDE>(where + i, part);
    }
}

__device__ inline void read_row(float (&row)[HEAD], const float *shared) {
    #pragma unroll
    for (int i = 0; i < HEAD; i++) row[i] = shared[i];
}

__device__ inline float dot(const float (&a)[HEAD], const float (&b)[HEAD]) {
    float even = 0.0f, odd = 0.0f;  // two sums that don't wait for each other
    #pragma unroll
    for (int i = 0; i < HEAD; i += 2) {
        even += a[i] * b[i];
        odd += a[i + 1] * b[i + 1];
    }
    return even + odd;
}

__device__ inline void add_times(float (&a)[HEAD], float factor, const float (&b)[HEAD]) {
    #pragma unroll
    for (int i = 0; i < HEAD; i++) a[i] += factor * b[i];
}

// Loads rows `first` to `first + count` of all the block's heads into shared memory, head after head; by the whole block.
__device__ inline void load_tile(
    float *shared, const T *from, Strides s, const Place &p, long long heads, long long heads_per_block, long long first,
    int count
) {
    int packs = HEAD / WIDE;
    long long first_head = p.head - p.group;
    for (int i = threadIdx.x; i < heads_per_block * count * packs; i += blockDim.x) {
        int row = i / packs % count, group = i / (packs * count), part = i % packs * WIDE;
        if (first_head + group >= heads) continue;
        float numbers[WIDE];
        load_pack<WIDE>(
            numbers, from + p.sample * s.sample + (first_head + group) * s.head + (first + row) * s.row + part
        );
        for (int j = 0; j < WIDE; j++) shared[(group * count + row) * HEAD + part + j] = numbers[j];
    }
}

// The same of an array (B, H, N), which has one number for a row.
__device__ inline void load_statistics(
    float *shared, const float *from, const Place &p, long long heads, long long length, long long heads_per_block,
    long long first, int count
) {
    long long first_head = p.head - p.group;
    for (int i = threadIdx.x; i < heads_per_block * count; i += blockDim.x) {
        int row = i % count, group = i / count;
        if (first_head + group >= heads) continue;
        shared[i] = from[(p.sample * heads + first_head + group) * length + first + row];
    }
}

// heads = softmax(q kᵀ · scale + bias) v, and of each query the largest score and 1 / Σ exp(scores − largest), (B, H, Nq).
// Both are kept, as log Σ exp(scores) in a float has too few digits where scores are large.
extern "C" __global__ void __launch_bounds__(128, 2) attention_forward(
    ARRAY(const T, q), ARRAY(const T, k), ARRAY(const T, v),
    BIAS_PARAMETERS,
    ARRAY(T, y), float *all_largest, float *all_inverse,
    long long heads, long long queries, long long keys, long long heads_per_block, long long tile, long long length,
    float power, float rest
) {
    alignas(16) __shared__ float some_keys[CAPACITY], some_values[CAPACITY];
    Place p = place_of<FORWARD>(heads, queries, heads_per_block, tile);
    float query[FORWARD][HEAD] = {}, sum[FORWARD][HEAD] = {}, largest[FORWARD], total[FORWARD] = {};
    for (int r = 0; r < FORWARD; r++) largest[r] = LOWEST;
    load_rows(query, q, STRIDES(q), p, power);
    for (long long first = 0; first < keys; first += length) {
        int count = min(length, keys - first);
        __syncthreads();  // the tile before may still be in use
        load_tile(some_keys, k, STRIDES(k), p, heads, heads_per_block, first, count);
        load_tile(some_values, v, STRIDES(v), p, heads, heads_per_block, first, count);
        __syncthreads();
        for (int i = 0; i < count && !p.none; i++) {
            float key[HEAD], value[HEAD];
            read_row(key, some_keys + (p.group * count + i) * HEAD);
            read_row(value, some_values + (p.group * count + i) * HEAD);
            #pragma unroll
            for (int r = 0; r < FORWARD; r++) {
                float score = dot(query[r], key) * rest;
                if (BIAS && has(p, r)) score += bias_at(BIAS_HERE, p, p.row + r * tile, first + i);
                if (score > largest[r]) {  // scale what was summed so far down to the new maximum
                    float factor = expf(largest[r] - score);
                    total[r] *= factor;
                    #pragma unroll
                    for (int j = 0; j < HEAD; j++) sum[r][j] *= factor;
                    largest[r] = score;
                }
                float weight = expf(score - largest[r]);
                total[r] += weight;
                add_times(sum[r], weight, value);
            }
        }
    }
    #pragma unroll
    for (int r = 0; r < FORWARD; r++) {
        if (!has(p, r)) continue;
        float inverse = total[r] == 0.0f ? 0.0f : 1.0f / total[r];  // zeros for a query that sees no key
        store_row(y + at(p, STRIDES(y), r), sum[r], inverse);
        long long number = (p.sample * heads + p.head) * queries + p.row + r * tile;
        all_largest[number] = largest[r];
        all_inverse[number] = inverse;
    }
}

// dq = Σ dscores k · scale over the keys, where dscores = probs (dprobs − Σ dprobs probs). That sum, `dot`, is known only
// after the last key, so what it is multiplied by is summed apart. It is also Σ dy y, but y was rounded to T.
extern "C" __global__ void __launch_bounds__(128, 2) attention_dq(
    ARRAY(const T, q), ARRAY(const T, k), ARRAY(const T, v), ARRAY(const T, dy),
    BIAS_PARAMETERS,
    ARRAY(T, dq),
    const float *all_largest, const float *all_inverse, float *dots,
    long long heads, long long queries, long long keys, long long heads_per_block, long long tile, long long length,
    float power, float rest
) {
    alignas(16) __shared__ float some_keys[CAPACITY], some_values[CAPACITY];
    Place p = place_of<BACKWARD>(heads, queries, heads_per_block, tile);
    float query[BACKWARD][HEAD] = {}, dhead[BACKWARD][HEAD] = {}, sum[BACKWARD][HEAD] = {}, mean_key[BACKWARD][HEAD] = {};
    float largest[BACKWARD] = {}, inverse[BACKWARD] = {}, product[BACKWARD] = {};
    long long number = (p.sample * heads + p.head) * queries + p.row;
    load_rows(query, q, STRIDES(q), p, power);
    load_rows(dhead, dy, STRIDES(dy), p, 1.0f);
    #pragma unroll
    for (int r = 0; r < BACKWARD; r++) {
        if (!has(p, r)) continue;
        largest[r] = all_largest[number + r * tile];
        inverse[r] = all_inverse[number + r * tile];
    }
    for (long long first = 0; first < keys; first += length) {
        int count = min(length, keys - first);
        __syncthreads();
        load_tile(some_keys, k, STRIDES(k), p, heads, heads_per_block, first, count);
        load_tile(some_values, v, STRIDES(v), p, heads, heads_per_block, first, count);
        __syncthreads();
        for (int i = 0; i < count && !p.none; i++) {
            float key[HEAD], value[HEAD];
            read_row(key, some_keys + (p.group * count + i) * HEAD);
            read_row(value, some_values + (p.group * count + i) * HEAD);
            #pragma unroll
            for (int r = 0; r < BACKWARD; r++) {
                float score = dot(query[r], key) * rest;
                if (BIAS && has(p, r)) score += bias_at(BIAS_HERE, p, p.row + r * tile, first + i);
                float prob = expf(score - largest[r]) * inverse[r];
                float part = prob * dot(dhead[r], value);
                product[r] += part;
                add_times(sum[r], part, key);
                add_times(mean_key[r], prob, key);
            }
        }
    }
    #pragma unroll
    for (int r = 0; r < BACKWARD; r++) {
        if (!has(p, r)) continue;
        add_times(sum[r], -product[r], mean_key[r]);
        store_row(dq + at(p, STRIDES(dq), r), sum[r], power * rest);
        dots[number + r * tile] = product[r];
    }
}

// dk = Σ dscores q · scale and dv = Σ probs dy over the queries; here a thread has keys. With a bias it also
// writes dscores (B, H, Nq, Nk), whose sum is the gradient of the bias.
extern "C" __global__ void __launch_bounds__(128, 2) attention_dk_dv(
    ARRAY(const T, q), ARRAY(const T, k), ARRAY(const T, v), ARRAY(const T, dy),
    BIAS_PARAMETERS,
    ARRAY(T, dk), ARRAY(T, dv),
    const float *all_largest, const float *all_inverse, const float *dots, float *dscores,
    long long heads, long long queries, long long keys, long long heads_per_block, long long tile, long long length,
    float power, float rest
) {
    alignas(16) __shared__ float some_queries[CAPACITY], some_dheads[CAPACITY];
    __shared__ float largest[CAPACITY / HEAD], inverse[CAPACITY / HEAD], product[CAPACITY / HEAD];
    Place p = place_of<BACKWARD>(heads, keys, heads_per_block, tile);
    float key[BACKWARD][HEAD] = {}, value[BACKWARD][HEAD] = {};
    float key_sum[BACKWARD][HEAD] = {}, value_sum[BACKWARD][HEAD] = {};
    load_rows(key, k, STRIDES(k), p, power);
    load_rows(value, v, STRIDES(v), p, 1.0f);
    for (long long first = 0; first < queries; first += length) {
        int count = min(length, queries - first);
        __syncthreads();
        load_tile(some_queries, q, STRIDES(q), p, heads, heads_per_block, first, count);
        load_tile(some_dheads, dy, STRIDES(dy), p, heads, heads_per_block, first, count);
        load_statistics(largest, all_largest, p, heads, queries, heads_per_block, first, count);
        load_statistics(inverse, all_inverse, p, heads, queries, heads_per_block, first, count);
        load_statistics(product, dots, p, heads, queries, heads_per_block, first, count);
        __syncthreads();
        for (int i = 0; i < count && !p.none; i++) {
            int number = p.group * count + i;
            float query[HEAD], dhead[HEAD];
            read_row(query, some_queries + number * HEAD);
            read_row(dhead, some_dheads + number * HEAD);
            #pragma unroll
            for (int r = 0; r < BACKWARD; r++) {
                float score = dot(key[r], query) * rest;
                if (BIAS && has(p, r)) score += bias_at(BIAS_HERE, p, first + i, p.row + r * tile);
                float prob = expf(score - largest[number]) * inverse[number];
                float dscore = prob * (dot(value[r], dhead) - product[number]);
                add_times(value_sum[r], prob, dhead);
                add_times(key_sum[r], dscore, query);
                if (BIAS && has(p, r)) {
                    dscores[((p.sample * heads + p.head) * queries + first + i) * keys + p.row + r * tile] = dscore;
                }
            }
        }
    }
    #pragma unroll
    for (int r = 0; r < BACKWARD; r++) {
        if (!has(p, r)) continue;
        store_row(dk + at(p, STRIDES(dk), r), key_sum[r], power * rest);
        store_row(dv + at(p, STRIDES(dv), r), value_sum[r], 1.0f);
    }
}
