"""Adam in one pass."""

import numpy as np

from tinyvit.functional.adam import adam_step
from tinyvit.kernels.adam import adam_step_float32
from tinyvit.kernels.fast.compiled import FLOAT, INPUT, OUTPUT, jit
from tinyvit.kernels.fast.exp import F


@jit(OUTPUT("n"), INPUT("n"), OUTPUT("n"), OUTPUT("n"), *[FLOAT] * 9)
def step(theta, g, m, v, kept, beta1, rest1, beta2, rest2, unbiased1, unbiased2, lr, eps):
    for i in range(theta.size):
        m[i] = beta1 * m[i] + rest1 * g[i]
        v[i] = beta2 * v[i] + rest2 * (g[i] * g[i])
        theta[i] = kept * theta[i] - lr * (m[i] * unbiased1) / (np.sqrt(v[i] * unbiased2) + eps)


def adam_step_fast(theta, g, m, v, t, lr, betas, eps, weight_decay, where=True):
    alike = theta.shape == g.shape == m.shape == v.shape and theta.dtype == g.dtype == m.dtype == v.dtype
    flat = theta.ndim == 1 and all(x.flags.c_contiguous for x in (theta, g, m, v))
    writeable = theta.flags.writeable and m.flags.writeable and v.flags.writeable
    if where is not True or not (alike and flat and writeable):
        return adam_step_float32(theta, g, m, v, t, lr, betas, eps, weight_decay, where)
    beta1, beta2 = betas
    # Each number is rounded once, after what it is made of was computed in double precision.
    step(
        theta, g, m, v, F(1 - lr * weight_decay), F(beta1), F(1 - beta1), F(beta2), F(1 - beta2),
        F(1 / (1 - beta1**t)), F(1 / (1 - beta2**t)), F(lr), F(eps),
    )  # fmt: skip


adam_step.register(("numpy", "float32"), adam_step_fast, "fast")
