// y = tanh(x), and dx = dy (1 − y²).

extern "C" __global__ void tanh_forward(const T *x, T *y, long long size) {
    long long i = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * PACK;
    if (i >= size) return;
    float numbers[PACK];
    load_pack<PACK>(numbers, x + i);
    for (int j = 0; j < PACK; j++) numbers[j] = tanhf(numbers[j]);
    store_pack<PACK>(y + i, numbers);
}

extern "C" __global__ void tanh_backward(const T *dy, const T *y, T *dx, long long size) {
    long long i = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * PACK;
    if (i >= size) return;
    float numbers[PACK], t[PACK];
    load_pack<PACK>(numbers, dy + i);
    load_pack<PACK>(t, y + i);
    for (int j = 0; j < PACK; j++) numbers[j] *= 1.0f - t[j] * t[j];
    store_pack<PACK>(dx + i, numbers);
}
