"""Solutions of the exercises on convolutional networks, as those of `solutions`, which has them too."""

import numpy as np


def conv2d(x, weight, bias, stride, padding):
    P, Q = weight.shape[2:]
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    H, W = (x.shape[2] - P) // stride + 1, (x.shape[3] - Q) // stride + 1
    y = 0.0
    for u in range(P):
        for v in range(Q):
            there = x[:, :, u : u + stride * H : stride, v : v + stride * W : stride]
            y = y + np.einsum("oc,bcij->boij", weight[:, :, u, v], there)
    return y + bias[:, None, None]


def conv2d_backward(dy, x, weight, stride, padding):
    (H, W), (P, Q), (rows, columns) = x.shape[2:], weight.shape[2:], dy.shape[2:]
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    dx, dweight = np.zeros(x.shape), np.zeros(weight.shape)
    for u in range(P):
        for v in range(Q):
            down, across = slice(u, u + stride * rows, stride), slice(v, v + stride * columns, stride)
            dx[:, :, down, across] += np.einsum("oc,boij->bcij", weight[:, :, u, v], dy)
            dweight[:, :, u, v] = np.einsum("boij,bcij->oc", dy, x[:, :, down, across])
    return dx[:, :, padding : padding + H, padding : padding + W], dweight, dy.sum((0, 2, 3))


def batch_norm(x, weight, bias, eps):
    centred = x - x.mean((0, 2, 3), keepdims=True)
    rstd = ((centred * centred).mean((0, 2, 3), keepdims=True) + eps) ** -0.5
    return centred * rstd * weight[:, None, None] + bias[:, None, None]


def batch_norm_backward(dy, x, weight, eps):
    centred = x - x.mean((0, 2, 3), keepdims=True)
    rstd = ((centred * centred).mean((0, 2, 3), keepdims=True) + eps) ** -0.5
    xhat = centred * rstd
    g = dy - dy.mean((0, 2, 3), keepdims=True) - xhat * (dy * xhat).mean((0, 2, 3), keepdims=True)
    return weight[:, None, None] * rstd * g, (dy * xhat).sum((0, 2, 3)), dy.sum((0, 2, 3))


def running_statistics(x, running_mean, running_variance, momentum):
    mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3), ddof=1)
    return (1 - momentum) * running_mean + momentum * mean, (1 - momentum) * running_variance + momentum * variance
