"""Adam in float32 by NumPy, in place, with one scratch array."""

import numpy as np

from tinyvit.functional.adam import adam_step
from tinyvit.functional.flat import require_alike


def adam_step_float32(theta, g, m, v, t, lr, betas, eps, weight_decay, where=True):
    if where is not True:
        return adam_step.reference(theta, g, m, v, t, lr, betas, eps, weight_decay, where)
    require_alike(adam_step, theta=theta, g=g, m=m, v=v)
    beta1, beta2 = betas
    scratch = np.multiply(g, 1 - beta1)
    m *= beta1
    m += scratch
    np.multiply(g, g, out=scratch)
    scratch *= 1 - beta2
    v *= beta2
    v += scratch
    np.multiply(v, 1 / (1 - beta2**t), out=scratch)
    np.sqrt(scratch, out=scratch)
    scratch += eps
    np.divide(m, scratch, out=scratch)
    scratch *= lr / (1 - beta1**t)
    if weight_decay:
        theta *= 1 - lr * weight_decay
    theta -= scratch


adam_step.register(("numpy", "float32"), adam_step_float32)
