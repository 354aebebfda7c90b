// Adam's step on stretches of the flat arrays, all float32 and in place, read and written once. Whatever depends on the
// hyperparameters alone comes ready; with t on the GPU the bias corrections are computed here.

extern "C" __global__ void adam_step(
    float *theta, const float *g, float *m, float *v, long long size,
    const long long *t, const bool *where,         // null: the factors below hold; null: the step is taken
    float log_beta1, float log_beta2, float m_factor, float v_factor,
    float beta1, float one_minus_beta1, float beta2, float one_minus_beta2, float lr, float eps, float decay
) {
    if (where && !*where) return;
    long long i = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * PACK;
    if (i >= size) return;
    if (t) {  // 1 / (1 − βᵗ), where 1 − exp(t log β) would lose the digits that expm1 keeps
        float steps = *t;
        m_factor = -1.0f / expm1f(steps * log_beta1);
        v_factor = -1.0f / expm1f(steps * log_beta2);
    }
    float x[PACK], dx[PACK], mean[PACK], square[PACK];
    load_pack<PACK>(x, theta + i);
    load_pack<PACK>(dx, g + i);
    load_pack<PACK>(mean, m + i);
    load_pack<PACK>(square, v + i);
    for (int j = 0; j < PACK; j++) {
        mean[j] = beta1 * mean[j] + one_minus_beta1 * dx[j];
        square[j] = beta2 * square[j] + one_minus_beta2 * dx[j] * dx[j];
        x[j] = decay * x[j] - lr * (mean[j] * m_factor) / (sqrtf(square[j] * v_factor) + eps);
    }
    store_pack<PACK>(theta + i, x);
    store_pack<PACK>(m + i, mean);
    store_pack<PACK>(v + i, square);
}
