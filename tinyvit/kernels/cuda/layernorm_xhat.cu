// x̂ of a layer norm, for a cache's `xhat`.
extern "C" __global__ void layernorm_xhat(
    const T *x, const float *statistics, float *xhat, long long rows, long long D
) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * D) return;
    long long row = i / D;
    float mean = statistics[row], rest = statistics[rows + row], rstd = statistics[2 * rows + row];
    xhat[i] = (to_float(x[i]) - mean - rest) * rstd;
}
