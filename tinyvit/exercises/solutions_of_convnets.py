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
    axes = 0, 2, 3
    centred = x - x.mean(axes, keepdims=True)
    variance = (centred * centred).mean(axes, keepdims=True)
    xhat = centred * (variance + eps) ** -0.5
    return xhat * weight[:, None, None] + bias[:, None, None]


def batch_norm_backward(dy, x, weight, eps):
    axes = 0, 2, 3
    centred = x - x.mean(axes, keepdims=True)
    variance = (centred * centred).mean(axes, keepdims=True)
    rstd = (variance + eps) ** -0.5
    xhat = centred * rstd
    mean_dy, mean_dyxhat = dy.mean(axes, keepdims=True), (dy * xhat).mean(axes, keepdims=True)
    dx = weight[:, None, None] * rstd * (dy - mean_dy - xhat * mean_dyxhat)
    return dx, (dy * xhat).sum(axes), dy.sum(axes)


def running_statistics(x, running_mean, running_variance, momentum):
    mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3), ddof=1)
    return (1 - momentum) * running_mean + momentum * mean, (1 - momentum) * running_variance + momentum * variance


def depthwise_conv2d(x, weight, padding):
    P, Q = weight.shape[1:]
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    H, W = x.shape[2] - P + 1, x.shape[3] - Q + 1
    places = np.ndindex(P, Q)
    return sum(weight[:, u, v, None, None] * x[:, :, u : u + H, v : v + W] for u, v in places)


def depthwise_conv2d_backward(dy, x, weight, padding):
    (H, W), (P, Q), (rows, columns) = x.shape[2:], weight.shape[1:], dy.shape[2:]
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    dx, dweight = np.zeros(x.shape), np.zeros(weight.shape)
    for u in range(P):
        for v in range(Q):
            dx[:, :, u : u + rows, v : v + columns] += weight[:, u, v, None, None] * dy
            dweight[:, u, v] = (dy * x[:, :, u : u + rows, v : v + columns]).sum((0, 2, 3))
    return dx[:, :, padding : padding + H, padding : padding + W], dweight


def group_norm(x, weight, bias, num_groups, eps):
    groups = x.reshape(len(x), num_groups, -1)                                 # (B, G, C/G · H · W)
    centred = groups - groups.mean(-1, keepdims=True)
    variance = (centred * centred).mean(-1, keepdims=True)
    xhat = centred * (variance + eps) ** -0.5
    return xhat.reshape(x.shape) * weight[:, None, None] + bias[:, None, None]


def group_norm_backward(dy, x, weight, num_groups, eps):
    groups = x.reshape(len(x), num_groups, -1)
    centred = groups - groups.mean(-1, keepdims=True)
    variance = (centred * centred).mean(-1, keepdims=True)
    rstd = (variance + eps) ** -0.5
    xhat = centred * rstd
    g = (dy * weight[:, None, None]).reshape(groups.shape)
    mean_g, mean_gxhat = g.mean(-1, keepdims=True), (g * xhat).mean(-1, keepdims=True)
    dx = rstd * (g - mean_g - xhat * mean_gxhat)
    return dx.reshape(x.shape), (dy * xhat.reshape(x.shape)).sum((0, 2, 3)), dy.sum((0, 2, 3))


def standardize_weight(weight, eps):
    axes = 1, 2, 3
    centred = weight - weight.mean(axes, keepdims=True)
    variance = (centred * centred).mean(axes, keepdims=True)
    return centred * (variance + eps) ** -0.5


def standardize_weight_backward(dy, weight, eps):
    axes = 1, 2, 3
    centred = weight - weight.mean(axes, keepdims=True)
    variance = (centred * centred).mean(axes, keepdims=True)
    rstd = (variance + eps) ** -0.5
    what = centred * rstd
    mean_dy, mean_dywhat = dy.mean(axes, keepdims=True), (dy * what).mean(axes, keepdims=True)
    return rstd * (dy - mean_dy - what * mean_dywhat)


def relu_backward(dy, x):
    return dy * (x > 0)


def max_pool2d(x, kernel, stride):
    H, W = (x.shape[2] - kernel) // stride + 1, (x.shape[3] - kernel) // stride + 1
    places = np.ndindex(kernel, kernel)
    seen = [x[:, :, u : u + stride * H : stride, v : v + stride * W : stride] for u, v in places]
    return np.max(seen, 0)


def max_pool2d_backward(dy, x, kernel, stride):
    scattered = np.zeros(x.shape)
    for b, c, i, j in np.ndindex(dy.shape):
        there = b, c, slice(i * stride, i * stride + kernel), slice(j * stride, j * stride + kernel)
        window, dwindow = x[there], scattered[there]                           # dwindow is a view
        largest = np.unravel_index(window.argmax(), window.shape)              # the first of equal ones
        dwindow[largest] += dy[b, c, i, j]
    return scattered


def avg_pool2d_backward(dy, kernel, stride, img_size):
    scattered = np.zeros((*dy.shape[:2], *img_size))
    H, W = dy.shape[2:]
    for u in range(kernel):
        for v in range(kernel):
            scattered[:, :, u : u + stride * H : stride, v : v + stride * W : stride] += dy / kernel**2
    return scattered
