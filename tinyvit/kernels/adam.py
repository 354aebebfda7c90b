"""Adam in float32 by NumPy, in place, with one array to work in."""

import numpy as np

from tinyvit.functional.adam import adam_step


def adam_step_float32(theta, g, m, v, t, lr, betas, eps, weight_decay, where=True):
    if where is not True:
        return adam_step.reference(theta, g, m, v, t, lr, betas, eps, weight_decay, where)
    beta1, beta2 = betas
    room = np.multiply(g, 1 - beta1)
    m *= beta1
    m += room
    np.multiply(g, g, out=room)
    room *= 1 - beta2
    v *= beta2
    v += room
    np.multiply(v, 1 / (1 - beta2**t), out=room)
    np.sqrt(room, out=room)
    room += eps
    np.divide(m, room, out=room)
    room *= lr / (1 - beta1**t)
    if weight_decay:
        theta *= 1 - lr * weight_decay
    theta -= room


adam_step.register(("numpy", "float32"), adam_step_float32)
