// GELU: y = x Φ(x). Its backward computes the slope Φ(x) + x φ(x) again, which costs less than to write and read it.

struct Slope { float cdf, slope; };

__device__ Slope gelu(float x) {
    float cdf = 0.5f * (1.0f + erff(x * 0.70710678118654752f));   // √½
    float pdf = expf(-0.5f * x * x) * 0.39894228040143268f;       // 1/√(2π)
    return {cdf, cdf + x * pdf};
}

// The tanh form: y = x Φ with Φ = (1 + tanh u) / 2 = 1 / (1 + exp(−2u)), u = √(2/π) (x + 0.044715 x³); the slope is
// Φ + 2x Φ (1 − Φ) du/dx. Beyond |x| = 10, Φ is 0 or 1 to every digit, so that x² may be cut off there: it would overflow.
__device__ Slope gelu_tanh(float x) {
    float square = fminf(x * x, 100.0f);
    float e = expf(-1.59576912160573071f * x * (1.0f + 0.044715f * square));  // 2 √(2/π)
    float cdf = 1.0f / (1.0f + e), rest = fminf(e, 3e38f) * cdf;  // 1 − Φ keeps its digits so
    float du = 1.59576912160573071f * (1.0f + 3.0f * 0.044715f * square);
    return {cdf, cdf + cdf * rest * x * du};
}

extern "C" __global__ void gelu_forward(const T *x, T *y, long long size) {
    long long i = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * PACK;
    if (i >= size) return;
    float in[PACK];
    load_pack<PACK>(in, x + i);
    for (int j = 0; j < PACK; j++) in[j] *= gelu(in[j]).cdf;
    store_pack<PACK>(y + i, in);
}

extern "C" __global__ void gelu_backward(const T *dy, const T *x, T *dx, long long size) {
    long long i = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * PACK;
    if (i >= size) return;
    float in[PACK], out[PACK];
    load_pack<PACK>(in, x + i);
    load_pack<PACK>(out, dy + i);
    for (int j = 0; j < PACK; j++) out[j] *= gelu(in[j]).slope;
    store_pack<PACK>(dx + i, out);
}

extern "C" __global__ void gelu_tanh_forward(const T *x, T *y, long long size) {
    long long i = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * PACK;
    if (i >= size) return;
    float in[PACK];
    load_pack<PACK>(in, x + i);
    for (int j = 0; j < PACK; j++) in[j] *= gelu_tanh(in[j]).cdf;
    store_pack<PACK>(y + i, in);
}

extern "C" __global__ void gelu_tanh_backward(const T *dy, const T *x, T *dx, long long size) {
    long long i = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * PACK;
    if (i >= size) return;
    float in[PACK], out[PACK];
    load_pack<PACK>(in, x + i);
    load_pack<PACK>(out, dy + i);
    for (int j = 0; j < PACK; j++) out[j] *= gelu_tanh(in[j]).slope;
    store_pack<PACK>(dx + i, out);
}
