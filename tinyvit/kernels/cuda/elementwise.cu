// GELU and its tanh form: y = f(x), and dx = dy · f'(x). The backward computes the slope again from x, which costs less
// than to write and read it.

struct Slope { float cdf, slope; };

// y = x Φ(x), with the slope Φ(x) + x φ(x). Both take one exponential: Φ(−a) = exp(−a²/2) M(a) for a ≥ 0, where M, a
// multiple of Mills' ratio, falls smoothly from 1/2 to 0 like 1/a. So it is a polynomial in t = 1 / (1 + 0.34 a) without
// a constant; this one, of the least largest error, gives Φ to 1.1e-8, less than what a float near 1 can hold.
__device__ Slope gelu(float x) {
    float density = expf(-0.5f * x * x), t = __fdividef(1.0f, 1.0f + 0.34f * fabsf(x));
    float sum = 0.0443252953f;
    sum = sum * t - 0.198263258f;
    sum = sum * t + 0.259951333f;
    sum = sum * t - 0.0268643578f;
    sum = sum * t + 0.154640128f;
    sum = sum * t + 0.13023414f;
    sum = sum * t + 0.135976732f;
    float tail = sum * t * density;
    float cdf = x < 0.0f ? tail : 1.0f - tail;
    return {cdf, cdf + x * (density * 0.39894228040143268f)};  // 1/√(2π)
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

__device__ float gelu_of(float x) { return x * gelu(x).cdf; }
__device__ float gelu_tanh_of(float x) { return x * gelu_tanh(x).cdf; }

__device__ float times_slope_of_gelu(float dy, float x) { return dy * gelu(x).slope; }
__device__ float times_slope_of_gelu_tanh(float dy, float x) { return dy * gelu_tanh(x).slope; }

template <float f(float)> __device__ void forward(const T *x, T *y, long long size) {
    long long i = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * PACK;
    if (i >= size) return;
    float numbers[PACK];
    load_pack<PACK>(numbers, x + i);
    for (int j = 0; j < PACK; j++) numbers[j] = f(numbers[j]);
    store_pack<PACK>(y + i, numbers);
}

template <float times_slope(float, float)> __device__ void backward(const T *dy, const T *x, T *dx, long long size) {
    long long i = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * PACK;
    if (i >= size) return;
    float in[PACK], out[PACK];
    load_pack<PACK>(in, x + i);
    load_pack<PACK>(out, dy + i);
    for (int j = 0; j < PACK; j++) out[j] = times_slope(out[j], in[j]);
    store_pack<PACK>(dx + i, out);
}

extern "C" __global__ void gelu_forward(const T *x, T *y, long long size) { forward<gelu_of>(x, y, size); }
extern "C" __global__ void gelu_tanh_forward(const T *x, T *y, long long size) { forward<gelu_tanh_of>(x, y, size); }

extern "C" __global__ void gelu_backward(const T *dy, const T *x, T *dx, long long size) {
    backward<times_slope_of_gelu>(dy, x, dx, size);
}

extern "C" __global__ void gelu_tanh_backward(const T *dy, const T *x, T *dx, long long size) {
    backward<times_slope_of_gelu_tanh>(dy, x, dx, size);
}
