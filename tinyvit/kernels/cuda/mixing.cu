// Images mixed with their partners, the first with the last, and what that makes of their labels: data.mixing. A product
// by __fmul_rn is rounded before it is added to anything.

// y = own · x + other · partner, of B images of `size` numbers.
extern "C" __global__ void mixup(const float *x, float *y, float own, float other, long long B, long long size) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= B * size) return;
    long long partner = (B - 1 - i / size) * size + i % size;
    y[i] = __fmul_rn(own, x[i]) + __fmul_rn(other, x[partner]);
}

// y = the partner inside of the box and x outside of it.
extern "C" __global__ void cutmix(
    const float *x, float *y, long long top, long long bottom, long long left, long long right, long long B,
    long long size, long long height, long long width
) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= B * size) return;
    long long row = i / width % height, column = i % width;
    bool inside = row >= top && row < bottom && column >= left && column < right;
    y[i] = x[inside ? (B - 1 - i / size) * size + i % size : i];
}

// Labels (B,) as probabilities (B, K), mixed as the images are.
extern "C" __global__ void mix_labels(
    const long long *labels, float *y, float own, float other, long long B, long long K
) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= B * K) return;
    long long row = i / K, k = i % K;
    y[i] = (labels[row] == k ? own : 0.0f) + (labels[B - 1 - row] == k ? other : 0.0f);
}
