// Attention in float that never writes its scores: they live in registers, one at a time.
//
// A thread has two rows of a head, queries in the forward and in dq, keys in dk and dv. It loops over all rows of
// the other kind, which its block loads into shared memory, a tile at a time. All lanes read
// the same numbers at once. Reading them takes longer than what is computed with them for one row; hence two. With more
// numbers a thread would need so many registers that only two blocks fit on an SM. Three do: while one loads to shared
// memory, others compute. A block has the rows of several heads of one sample, so that few threads of its last warp are
// idle.
//
// Of each array (B, H, N, HEAD) the last axis is contiguous; the strides of the others are given in numbers. The grid is
// (samples, groups of heads, tiles of rows).
//
// The scale comes in two factors: `power`, a power of two by which rows are multiplied first, so that a score overflows
// only if it is too large itself, and `rest`, from 1 to 2.

constexpr int HEAD = 16;                      // the width of a head
constexpr int CAPACITY = 4096;                // numbers in each of the two tiles that a block keeps
constexpr int EACH = 2;                       // rows of a thread; all three also in fused_attention.py
constexpr int KEPT = 8;                       // columns of a query that dk and dv needn't read again
constexpr float LOWEST = -3.402823466e38f;    // and not −∞, as −∞ − (−∞) is NaN

struct Strides { long long sample, head, row; };

// Parameters that describe an array, and what they are inside of a kernel.
#define ARRAY(type, name) type *name, long long name##_sample, long long name##_head, long long name##_row
#define STRIDES(name) {name##_sample, name##_head, name##_row}

// What a thread works on: of head `head` the rows `row` and `row` + tile, as far as it `has` them. A thread that has none
// takes part in loads all the same.
struct Place {
    int sample, first_head, head, row, tile;
    int group;  // which of the block's heads
    bool has[EACH];
};

__device__ inline Place place_of(int heads, int rows, int heads_per_block, int tile) {
    int group = threadIdx.x / tile;
    Place p;
    p.sample = blockIdx.x;
    p.first_head = blockIdx.y * heads_per_block;
    p.group = min(group, heads_per_block - 1);
    p.head = p.first_head + p.group;
    p.row = blockIdx.z * tile * EACH + threadIdx.x % tile;
    p.tile = tile;
    for (int r = 0; r < EACH; r++) p.has[r] = group == p.group && p.head < heads && p.row + r * tile < rows;
    return p;
}

// Where the thread's row `r` begins.
__device__ inline long long at(const Place &p, const Strides &s, int r) {
    return p.sample * s.sample + p.head * s.head + (p.row + r * p.tile) * s.row;
}

// The rows of a thread, times a factor; rows that it doesn't have stay as they are.
__device__ inline void load_rows(float (&rows)[EACH][HEAD], const float *from, Strides s, const Place &p, float factor) {
    for (int r = 0; r < EACH; r++) {
        if (!p.has[r]) continue;
        for (int i = 0; i < HEAD; i += 4) {
            float part[4];
            load_pack<4>(part, from + at(p, s, r) + i);
            for (int j = 0; j < 4; j++) rows[r][i + j] = part[j] * factor;
        }
    }
}

__device__ inline void store_row(float *where, const float (&row)[HEAD], float factor) {
    for (int i = 0; i < HEAD; i += 4) {
        float part[4];
        for (int j = 0; j < 4; j++) part[j] = row[i + j] * factor;
        store_pack<4>(where + i, part);
    }
}

__device__ inline void read_row(float (&row)[HEAD], const float *shared) {
    for (int i = 0; i < HEAD; i++) row[i] = shared[i];
}

__device__ inline float dot(const float (&a)[HEAD], const float (&b)[HEAD]) {
    float even = 0.0f, odd = 0.0f;  // two sums that don't wait for each other
    for (int i = 0; i < HEAD; i += 2) {
        even += a[i] * b[i];
        odd += a[i + 1] * b[i + 1];
    }
    return even + odd;
}

__device__ inline void add_times(float (&a)[HEAD], float factor, const float (&b)[HEAD]) {
    for (int i = 0; i < HEAD; i++) a[i] += factor * b[i];
}

// Loads rows `first` to `first + count` of all the block's heads into shared memory, head after head; by the whole block.
__device__ inline void load_tile(
    float *shared, const float *from, Strides s, const Place &p, int heads, int heads_per_block, int first, int count
) {
    constexpr int PACKS = HEAD / 4;
    for (int i = threadIdx.x; i < heads_per_block * count * PACKS; i += blockDim.x) {
        int row = i / PACKS % count, group = i / (PACKS * count), part = i % PACKS * 4;
        if (p.first_head + group >= heads) continue;
        float numbers[4];
        load_pack<4>(
            numbers, from + p.sample * s.sample + (p.first_head + group) * s.head + (first + row) * s.row + part
        );
        for (int j = 0; j < 4; j++) shared[(group * count + row) * HEAD + part + j] = numbers[j];
    }
}

// The same of an array (B, H, N), which has one number for a row, into every fourth number.
__device__ inline void load_statistics(
    float *shared, const float *from, const Place &p, int heads, long long length, int heads_per_block, int first,
    int count
) {
    for (int i = threadIdx.x; i < heads_per_block * count; i += blockDim.x) {
        int row = i % count, group = i / count;
        if (p.first_head + group >= heads) continue;
        shared[i * 4] = from[((long long)p.sample * heads + p.first_head + group) * length + first + row];
    }
}

// heads = softmax(q kᵀ · scale) v, and of each query the largest score and 1 / Σ exp(scores − largest), (B, H, Nq).
// Both are kept, as log Σ exp(scores) in a float has too few digits where scores are large.
extern "C" __global__ void __launch_bounds__(128, 3) attention_forward(
    ARRAY(const float, q), ARRAY(const float, k), ARRAY(const float, v), ARRAY(float, y), float *all_largest,
    float *all_inverse, long long heads, long long queries, long long keys, long long heads_per_block, long long tile,
    long long length, float power, float rest
) {
    alignas(16) __shared__ float some_keys[CAPACITY], some_values[CAPACITY];
    Place p = place_of(heads, queries, heads_per_block, tile);
    float query[EACH][HEAD] = {}, sum[EACH][HEAD] = {}, largest[EACH], total[EACH] = {};
    for (int r = 0; r < EACH; r++) largest[r] = LOWEST;
    load_rows(query, q, STRIDES(q), p, power);
    for (int first = 0; first < keys; first += length) {
        int count = min((int)length, (int)keys - first);
        __syncthreads();  // the tile before may still be in use
        load_tile(some_keys, k, STRIDES(k), p, heads, heads_per_block, first, count);
        load_tile(some_values, v, STRIDES(v), p, heads, heads_per_block, first, count);
        __syncthreads();
        for (int i = 0; i < count; i++) {
            float key[HEAD], value[HEAD];
            read_row(key, some_keys + (p.group * count + i) * HEAD);
            read_row(value, some_values + (p.group * count + i) * HEAD);
            for (int r = 0; r < EACH; r++) {
                float score = dot(query[r], key) * rest;
                if (score > largest[r]) {  // scale what was summed so far down to the new maximum
                    float factor = expf(largest[r] - score);
                    total[r] *= factor;
                    for (int j = 0; j < HEAD; j++) sum[r][j] *= factor;
                    largest[r] = score;
                }
                float weight = expf(score - largest[r]);
                total[r] += weight;
                add_times(sum[r], weight, value);
            }
        }
    }
    for (int r = 0; r < EACH; r++) {
        if (!p.has[r]) continue;
        float inverse = total[r] == 0.0f ? 0.0f : 1.0f / total[r];  // zeros for a query that sees no key
        store_row(y + at(p, STRIDES(y), r), sum[r], inverse);
        long long number = ((long long)p.sample * heads + p.head) * queries + p.row + r * tile;
        all_largest[number] = largest[r];
        all_inverse[number] = inverse;
    }
}

// dq = Σ dscores k · scale over the keys, where dscores = probs (dprobs − dots) and dots = Σ dprobs probs = Σ dy y.
extern "C" __global__ void __launch_bounds__(128, 3) attention_dq(
    ARRAY(const float, q), ARRAY(const float, k), ARRAY(const float, v), ARRAY(const float, dy), ARRAY(float, dq),
    ARRAY(const float, y), const float *all_largest, const float *all_inverse, float *dots, long long heads,
    long long queries, long long keys, long long heads_per_block, long long tile, long long length, float power, float rest
) {
    alignas(16) __shared__ float some_keys[CAPACITY], some_values[CAPACITY];
    Place p = place_of(heads, queries, heads_per_block, tile);
    float query[EACH][HEAD] = {}, dhead[EACH][HEAD] = {}, sum[EACH][HEAD] = {};
    float largest[EACH] = {}, inverse[EACH] = {}, product[EACH];
    load_rows(dhead, dy, STRIDES(dy), p, 1.0f);
    load_rows(query, y, STRIDES(y), p, 1.0f);  // where the queries come next
    for (int r = 0; r < EACH; r++) {
        product[r] = dot(dhead[r], query[r]);
        if (!p.has[r]) continue;
        long long number = ((long long)p.sample * heads + p.head) * queries + p.row + r * tile;
        largest[r] = all_largest[number];
        inverse[r] = all_inverse[number];
        dots[number] = product[r];
    }
    load_rows(query, q, STRIDES(q), p, power);
    for (int first = 0; first < keys; first += length) {
        int count = min((int)length, (int)keys - first);
        __syncthreads();
        load_tile(some_keys, k, STRIDES(k), p, heads, heads_per_block, first, count);
        load_tile(some_values, v, STRIDES(v), p, heads, heads_per_block, first, count);
        __syncthreads();
        for (int i = 0; i < count; i++) {
            float key[HEAD], value[HEAD];
            read_row(key, some_keys + (p.group * count + i) * HEAD);
            read_row(value, some_values + (p.group * count + i) * HEAD);
            for (int r = 0; r < EACH; r++) {
                float prob = expf(dot(query[r], key) * rest - largest[r]) * inverse[r];
                add_times(sum[r], prob * (dot(dhead[r], value) - product[r]), key);
            }
        }
    }
    for (int r = 0; r < EACH; r++) {
        if (p.has[r]) store_row(dq + at(p, STRIDES(dq), r), sum[r], power * rest);
    }
}

// dk = Σ dscores q · scale and dv = Σ probs dy over the queries; here a thread has keys.
//
// A thread needs 128 registers for its keys, values and sums. Hence dy goes by four numbers at a time, and half of the
// query is read again when its turn comes: if all of it stayed in registers, only two blocks would fit on an SM.
extern "C" __global__ void __launch_bounds__(128, 3) attention_dk_dv(
    ARRAY(const float, q), ARRAY(const float, k), ARRAY(const float, v), ARRAY(const float, dy), ARRAY(float, dk),
    ARRAY(float, dv), const float *all_largest, const float *all_inverse, const float *dots, long long heads,
    long long queries, long long keys, long long heads_per_block, long long tile, long long length, float power, float rest
) {
    alignas(16) __shared__ float rows[2 * CAPACITY], statistics[CAPACITY / HEAD * 4];  // queries, and behind them dy
    Place p = place_of(heads, keys, heads_per_block, tile);
    float key[EACH][HEAD] = {}, value[EACH][HEAD] = {};
    float key_sum[EACH][HEAD] = {}, value_sum[EACH][HEAD] = {};
    load_rows(key, k, STRIDES(k), p, power);
    load_rows(value, v, STRIDES(v), p, 1.0f);
    for (int first = 0; first < queries; first += length) {
        int count = min((int)length, (int)queries - first);
        __syncthreads();
        load_tile(rows, q, STRIDES(q), p, heads, heads_per_block, first, count);
        load_tile(rows + CAPACITY, dy, STRIDES(dy), p, heads, heads_per_block, first, count);
        load_statistics(statistics, all_largest, p, heads, queries, heads_per_block, first, count);
        load_statistics(statistics + 1, all_inverse, p, heads, queries, heads_per_block, first, count);
        load_statistics(statistics + 2, dots, p, heads, queries, heads_per_block, first, count);
        __syncthreads();
        for (int i = 0; i < count; i++) {
            const float *row = rows + (p.group * count + i) * HEAD;
            float query[HEAD], part[4], of_query[4];  // the last: largest, inverse, dot
            float prob[EACH], dscore[EACH] = {};
            read_row(query, row);
            load_pack<4>(of_query, statistics + (p.group * count + i) * 4);
            for (int r = 0; r < EACH; r++) prob[r] = expf(dot(key[r], query) * rest - of_query[0]) * of_query[1];
            for (int j = 0; j < HEAD; j += 4) {
                load_pack<4>(part, row + CAPACITY + j);
                for (int n = 0; n < 4 * EACH; n++) {
                    dscore[n / 4] += value[n / 4][j + n % 4] * part[n % 4];
                    value_sum[n / 4][j + n % 4] += prob[n / 4] * part[n % 4];
                }
            }
            for (int r = 0; r < EACH; r++) dscore[r] = prob[r] * (dscore[r] - of_query[2]);
            for (int j = 0; j < HEAD; j += 4) {
                if (j < KEPT) for (int n = 0; n < 4; n++) part[n] = query[j + n];
                else load_again(part, row + j);
                for (int n = 0; n < 4 * EACH; n++) key_sum[n / 4][j + n % 4] += dscore[n / 4] * part[n % 4];
            }
        }
    }
    for (int r = 0; r < EACH; r++) {
        if (!p.has[r]) continue;
        store_row(dk + at(p, STRIDES(dk), r), key_sum[r], power * rest);
        store_row(dv + at(p, STRIDES(dv), r), value_sum[r], 1.0f);
    }
}
