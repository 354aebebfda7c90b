// The mask of samples of `entries` entries, for a cache's `mask`.
extern "C" __global__ void dropout_mask(
    bool *mask, unsigned long long key, const unsigned long long *key_at, float keep, long long entries, long long size
) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size) mask[i] = uniform(key_at ? *key_at : key, i / entries, i % entries) < keep;
}
