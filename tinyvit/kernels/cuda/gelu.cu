// GELU: y = x Φ(x), and what its backward needs, the slope Φ(x) + x φ(x).

extern "C" __global__ void gelu_forward(const T *x, T *y, T *slope, long long size) {
    long long i = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * PACK;
    if (i >= size) return;
    float in[PACK], out[PACK], steep[PACK];
    load_pack<PACK>(in, x + i);
    for (int j = 0; j < PACK; j++) {
        float cdf = 0.5f * (1.0f + erff(in[j] * 0.70710678118654752f));   // √½
        float pdf = expf(-0.5f * in[j] * in[j]) * 0.39894228040143268f;   // 1/√(2π)
        out[j] = in[j] * cdf;
        steep[j] = cdf + in[j] * pdf;
    }
    store_pack<PACK>(y + i, out);
    store_pack<PACK>(slope + i, steep);
}

// The tanh form: y = x Φ with Φ = (1 + tanh u) / 2 = 1 / (1 + exp(−2u)), u = √(2/π) (x + 0.044715 x³); the slope is
// Φ + 2x Φ (1 − Φ) du/dx. Beyond |x| = 10, Φ is 0 or 1 to every digit, so that x² may be cut off there: it would overflow.
extern "C" __global__ void gelu_tanh_forward(const T *x, T *y, T *slope, long long size) {
    long long i = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * PACK;
    if (i >= size) return;
    float in[PACK], out[PACK], steep[PACK];
    load_pack<PACK>(in, x + i);
    for (int j = 0; j < PACK; j++) {
        float square = fminf(in[j] * in[j], 100.0f);
        float e = expf(-1.59576912160573071f * in[j] * (1.0f + 0.044715f * square));  // 2 √(2/π)
        float cdf = 1.0f / (1.0f + e), rest = fminf(e, 3e38f) * cdf;  // 1 − Φ keeps its digits so
        float du = 1.59576912160573071f * (1.0f + 3.0f * 0.044715f * square);
        out[j] = in[j] * cdf;
        steep[j] = cdf + cdf * rest * in[j] * du;
    }
    store_pack<PACK>(y + i, out);
    store_pack<PACK>(slope + i, steep);
}

// dx = dy · slope
extern "C" __global__ void gelu_backward(const T *dy, const T *slope, T *dx, long long size) {
    long long i = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * PACK;
    if (i >= size) return;
    float in[PACK], steep[PACK];
    load_pack<PACK>(in, dy + i);
    load_pack<PACK>(steep, slope + i);
    for (int j = 0; j < PACK; j++) in[j] *= steep[j];
    store_pack<PACK>(dx + i, in);
}
