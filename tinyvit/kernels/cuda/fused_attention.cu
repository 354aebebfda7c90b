// Attention that never writes its scores: they live in registers, one at a time.
//
// A thread has a row or two of its own, queries in the forward and in dq, keys in dk and dv, and walks over all rows of
// the other kind, which its block has put into shared memory, a stretch at a time. All threads of a warp look at the same
// one. Reading it takes longer than what is computed with it for one row; hence two, where registers allow. A block has
// the rows of several heads of one sample, so that few threads of its last warp have none.
//
// HEAD   width of a head
// Of each array (B, H, N, HEAD) the last axis is contiguous; the strides of the others are given in numbers.

constexpr int CAPACITY = 4096;                // numbers in each of the two stretches that a block keeps
constexpr int FORWARD = 2;                    // rows of a thread
constexpr int BACKWARD = HEAD == 16 ? 2 : 1;  // also in fused_attention.py
constexpr int WIDE = 16 / sizeof(T);          // numbers in 16 bytes
constexpr float LOWEST = -3.402823466e38f;    // of all floats; −∞ less −∞ would be no number

struct Strides { long long sample, head, row; };

// What a thread works on: of head `head` the rows `row`, `row` + tile, … below `rows`; `none` if there are none for it.
struct Place {
    long long sample, head, row, rows, tile;
    int group;  // which of the block's heads
    bool none;
};

template <int EACH>
__device__ inline Place place_of(long long heads, long long rows, long long together, long long tile) {
    long long groups = (heads + together - 1) / together, tiles = (rows + tile * EACH - 1) / (tile * EACH);
    long long block = blockIdx.x;
    long long first_row = block % tiles * tile * EACH, first_head = block / tiles % groups * together;
    Place p;
    p.sample = block / (tiles * groups);
    p.group = threadIdx.x / tile;
    p.head = first_head + p.group;
    p.row = first_row + threadIdx.x % tile;
    p.rows = rows;
    p.tile = tile;
    p.none = p.group >= together || p.head >= heads || p.row >= rows;
    return p;
}

__device__ inline bool has(const Place &p, int r) { return !p.none && p.row + r * p.tile < p.rows; }

__device__ inline long long at(const Place &p, const Strides &s, int r) {
    return p.sample * s.sample + p.head * s.head + (p.row + r * p.tile) * s.row;
}

// The rows of a thread; zeros where it has none.
template <int EACH> __device__ inline void load_rows(float (&rows)[EACH][HEAD], const T *from, Strides s, const Place &p) {
    #pragma unroll
    for (int r = 0; r < EACH; r++) {
        if (!has(p, r)) continue;
        #pragma unroll
        for (int i = 0; i < HEAD; i += WIDE) {
            float part[WIDE];
            load_pack<WIDE>(part, from + at(p, s, r) + i);
            #pragma unroll
            for (int j = 0; j < WIDE; j++) rows[r][i + j] = part[j];
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

// A row of shared memory.
__device__ inline void look_at(float (&row)[HEAD], const float *kept) {
    #pragma unroll
    for (int i = 0; i < HEAD; i++) row[i] = kept[i];
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

// Rows `first` to `first + count` of all the block's heads into shared memory, head after head; the whole block does it.
__device__ inline void keep(
    float *kept, const T *from, Strides s, const Place &p, long long heads, long long together, long long first, int count
) {
    int packs = HEAD / WIDE;
    long long first_head = p.head - p.group;
    for (int i = threadIdx.x; i < together * count * packs; i += blockDim.x) {
        int row = i / packs % count, group = i / (packs * count), part = i % packs * WIDE;
        if (first_head + group >= heads) continue;
        float numbers[WIDE];
        load_pack<WIDE>(
            numbers, from + p.sample * s.sample + (first_head + group) * s.head + (first + row) * s.row + part
        );
        for (int j = 0; j < WIDE; j++) kept[(group * count + row) * HEAD + part + j] = numbers[j];
    }
}

// The same of an array (B, H, N), which has one number for a row.
__device__ inline void keep_numbers(
    float *kept, const float *from, const Place &p, long long heads, long long length, long long together,
    long long first, int count
) {
    long long first_head = p.head - p.group;
    for (int i = threadIdx.x; i < together * count; i += blockDim.x) {
        int row = i % count, group = i / count;
        if (first_head + group >= heads) continue;
        kept[i] = from[(p.sample * heads + first_head + group) * length + first + row];
    }
}

// heads = softmax(q kᵀ · scale) v, and of each query the largest score and 1 / Σ exp(scores − largest), (B, H, Nq). Kept
// apart, since the digits of log Σ exp(scores) that a float has are too few where scores are large.
extern "C" __global__ void __launch_bounds__(256) attention_forward(
    const T *q, long long q_sample, long long q_head, long long q_row,
    const T *k, long long k_sample, long long k_head, long long k_row,
    const T *v, long long v_sample, long long v_head, long long v_row,
    T *y, long long y_sample, long long y_head, long long y_row, float *all_largest, float *all_inverse,
    long long heads, long long queries, long long keys, long long together, long long tile, long long stretch,
    float scale
) {
    alignas(16) __shared__ float some_keys[CAPACITY], some_values[CAPACITY];
    Place p = place_of<FORWARD>(heads, queries, together, tile);
    float query[FORWARD][HEAD] = {}, sum[FORWARD][HEAD] = {}, largest[FORWARD], total[FORWARD] = {};
    for (int r = 0; r < FORWARD; r++) largest[r] = LOWEST;
    load_rows(query, q, {q_sample, q_head, q_row}, p);
    for (long long first = 0; first < keys; first += stretch) {
        int count = min(stretch, keys - first);
        __syncthreads();  // the stretch before may still be in use
        keep(some_keys, k, {k_sample, k_head, k_row}, p, heads, together, first, count);
        keep(some_values, v, {v_sample, v_head, v_row}, p, heads, together, first, count);
        __syncthreads();
        for (int i = 0; i < count && !p.none; i++) {
            float key[HEAD], value[HEAD];
            look_at(key, some_keys + (p.group * count + i) * HEAD);
            look_at(value, some_values + (p.group * count + i) * HEAD);
            #pragma unroll
            for (int r = 0; r < FORWARD; r++) {
                float score = dot(query[r], key) * scale;
                if (score > largest[r]) {  // what was summed so far is in units of exp(largest)
                    float smaller = expf(largest[r] - score);
                    total[r] *= smaller;
                    #pragma unroll
                    for (int j = 0; j < HEAD; j++) sum[r][j] *= smaller;
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
        store_row(y + at(p, {y_sample, y_head, y_row}, r), sum[r], 1.0f / total[r]);
        long long number = (p.sample * heads + p.head) * queries + p.row + r * tile;
        all_largest[number] = largest[r];
        all_inverse[number] = 1.0f / total[r];
    }
}

// dq = Σ dscores k · scale over the keys, where dscores = probs (dprobs − Σ dprobs probs). That sum, `along`, is known only
// when the last key was seen, so what it is multiplied with is summed apart. It is also Σ dy y, but y was rounded to T.
extern "C" __global__ void __launch_bounds__(256) attention_dq(
    const T *q, long long q_sample, long long q_head, long long q_row,
    const T *k, long long k_sample, long long k_head, long long k_row,
    const T *v, long long v_sample, long long v_head, long long v_row,
    const T *dy, long long dy_sample, long long dy_head, long long dy_row,
    T *dq, long long dq_sample, long long dq_head, long long dq_row,
    const float *all_largest, const float *all_inverse, float *along,
    long long heads, long long queries, long long keys, long long together, long long tile, long long stretch,
    float scale
) {
    alignas(16) __shared__ float some_keys[CAPACITY], some_values[CAPACITY];
    Place p = place_of<BACKWARD>(heads, queries, together, tile);
    float query[BACKWARD][HEAD] = {}, dhead[BACKWARD][HEAD] = {}, sum[BACKWARD][HEAD] = {}, mean_key[BACKWARD][HEAD] = {};
    float largest[BACKWARD] = {}, inverse[BACKWARD] = {}, product[BACKWARD] = {};
    long long number = (p.sample * heads + p.head) * queries + p.row;
    load_rows(query, q, {q_sample, q_head, q_row}, p);
    load_rows(dhead, dy, {dy_sample, dy_head, dy_row}, p);
    #pragma unroll
    for (int r = 0; r < BACKWARD; r++) {
        if (!has(p, r)) continue;
        largest[r] = all_largest[number + r * tile];
        inverse[r] = all_inverse[number + r * tile];
    }
    for (long long first = 0; first < keys; first += stretch) {
        int count = min(stretch, keys - first);
        __syncthreads();
        keep(some_keys, k, {k_sample, k_head, k_row}, p, heads, together, first, count);
        keep(some_values, v, {v_sample, v_head, v_row}, p, heads, together, first, count);
        __syncthreads();
        for (int i = 0; i < count && !p.none; i++) {
            float key[HEAD], value[HEAD];
            look_at(key, some_keys + (p.group * count + i) * HEAD);
            look_at(value, some_values + (p.group * count + i) * HEAD);
            #pragma unroll
            for (int r = 0; r < BACKWARD; r++) {
                float prob = expf(dot(query[r], key) * scale - largest[r]) * inverse[r];
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
        store_row(dq + at(p, {dq_sample, dq_head, dq_row}, r), sum[r], scale);
        along[number + r * tile] = product[r];
    }
}

// dk = Σ dscores q · scale and dv = Σ probs dy over the queries; here a thread has keys.
extern "C" __global__ void __launch_bounds__(256) attention_dk_dv(
    const T *q, long long q_sample, long long q_head, long long q_row,
    const T *k, long long k_sample, long long k_head, long long k_row,
    const T *v, long long v_sample, long long v_head, long long v_row,
    const T *dy, long long dy_sample, long long dy_head, long long dy_row,
    T *dk, long long dk_sample, long long dk_head, long long dk_row,
    T *dv, long long dv_sample, long long dv_head, long long dv_row,
    const float *all_largest, const float *all_inverse, const float *along,
    long long heads, long long queries, long long keys, long long together, long long tile, long long stretch,
    float scale
) {
    alignas(16) __shared__ float some_queries[CAPACITY], some_dheads[CAPACITY];
    __shared__ float largest[CAPACITY / HEAD], inverse[CAPACITY / HEAD], product[CAPACITY / HEAD];
    Place p = place_of<BACKWARD>(heads, keys, together, tile);
    float key[BACKWARD][HEAD] = {}, value[BACKWARD][HEAD] = {};
    float key_sum[BACKWARD][HEAD] = {}, value_sum[BACKWARD][HEAD] = {};
    load_rows(key, k, {k_sample, k_head, k_row}, p);
    load_rows(value, v, {v_sample, v_head, v_row}, p);
    for (long long first = 0; first < queries; first += stretch) {
        int count = min(stretch, queries - first);
        __syncthreads();
        keep(some_queries, q, {q_sample, q_head, q_row}, p, heads, together, first, count);
        keep(some_dheads, dy, {dy_sample, dy_head, dy_row}, p, heads, together, first, count);
        keep_numbers(largest, all_largest, p, heads, queries, together, first, count);
        keep_numbers(inverse, all_inverse, p, heads, queries, together, first, count);
        keep_numbers(product, along, p, heads, queries, together, first, count);
        __syncthreads();
        for (int i = 0; i < count && !p.none; i++) {
            int number = p.group * count + i;
            float query[HEAD], dhead[HEAD];
            look_at(query, some_queries + number * HEAD);
            look_at(dhead, some_dheads + number * HEAD);
            #pragma unroll
            for (int r = 0; r < BACKWARD; r++) {
                float prob = expf(dot(key[r], query) * scale - largest[number]) * inverse[number];
                float dscore = prob * (dot(value[r], dhead) - product[number]);
                add_times(value_sum[r], prob, dhead);
                add_times(key_sum[r], dscore, query);
            }
        }
    }
    #pragma unroll
    for (int r = 0; r < BACKWARD; r++) {
        if (!has(p, r)) continue;
        store_row(dk + at(p, {dk_sample, dk_head, dk_row}, r), key_sum[r], scale);
        store_row(dv + at(p, {dv_sample, dv_head, dv_row}, r), value_sum[r], 1.0f);
    }
}
