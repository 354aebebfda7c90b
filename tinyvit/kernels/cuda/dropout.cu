// Dropout of single entries or of whole samples. Whether an entry is kept is recomputed wherever it is needed,
// from the 64 bits that the key gives the first sample: no mask is read.

__device__ inline bool is_kept(unsigned long long first, float keep, long long i, long long entries, long long whole) {
    return uniform(first, i / entries, whole ? 0 : i % entries) < keep;
}

// y = x · mask / keep, forwards and backwards. A sample has `entries` entries; `whole` if they are kept or dropped together.
extern "C" __global__ void dropout(
    const T *x, T *y, unsigned long long key, const unsigned long long *key_at, float keep, float scale,
    long long entries, long long whole, long long size
) {
    unsigned long long first = key_at ? *key_at : key;
    long long i = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * PACK;
    if (i >= size) return;
    float numbers[PACK];
    load_pack<PACK>(numbers, x + i);
    if (whole) {  // a pack lies within a sample
        float factor = is_kept(first, keep, i, entries, whole) ? scale : 0.0f;
        for (int j = 0; j < PACK; j++) numbers[j] *= factor;
    } else {
        for (int j = 0; j < PACK; j++) numbers[j] *= is_kept(first, keep, i + j, entries, whole) ? scale : 0.0f;
    }
    store_pack<PACK>(y + i, numbers);
}
