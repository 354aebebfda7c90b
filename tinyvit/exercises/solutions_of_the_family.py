"""Solutions of the exercises on DeiT, Swin, CoAtNet, MAE, DINO, CLIP, DiT, ViViT and GPUs; see `solutions`."""

import numpy as np


def distillation_backward(logits, teacher, temperature):
    q, p = (np.exp((x - x.max(1, keepdims=True)) / temperature) for x in (logits, teacher))
    q, p = q / q.sum(1, keepdims=True), p / p.sum(1, keepdims=True)
    return (q - p) * temperature / logits.size


def window_partition(x, window, shift):
    B, H, W, D = x.shape
    x = np.roll(x, (-shift, -shift), (1, 2))
    cut = x.reshape(B, H // window, window, W // window, window, D)
    return cut.transpose(0, 1, 3, 2, 4, 5).reshape(-1, window * window, D)     # (B, rows, columns, p, p, D)


def window_reverse(windows, sides, window, shift):
    (H, W), D = sides, windows.shape[-1]
    x = windows.reshape(-1, H // window, W // window, window, window, D)
    x = x.transpose(0, 1, 3, 2, 4, 5).reshape(-1, H, W, D)                     # (B, rows, p, columns, p, D)
    return np.roll(x, (shift, shift), (1, 2))


def relative_bias(table, side):
    y, x = np.divmod(np.arange(side * side), side)
    down, across = y[:, None] - y + side - 1, x[:, None] - x + side - 1
    index = down * (2 * side - 1) + across
    return table[index].transpose(2, 0, 1)                                     # (H, n, n)


def relative_bias_backward(dy, side):
    y, x = np.divmod(np.arange(side * side), side)
    down, across = y[:, None] - y + side - 1, x[:, None] - x + side - 1
    index = down * (2 * side - 1) + across
    dtable = np.zeros(((2 * side - 1) ** 2, len(dy)))
    np.add.at(dtable, index, dy.transpose(1, 2, 0))
    return dtable


def silu_backward(dy, x):
    gate = 0.5 * (1 + np.tanh(0.5 * x))
    return dy * gate * (1 + x * (1 - gate))


def scale_channels_backward(dy, x, weight):
    return dy * weight[:, :, None, None], (dy * x).sum((2, 3))


def place_tokens(x, token, index, count):
    filled = np.repeat(np.repeat(token, count, 1), len(x), 0)
    filled[np.arange(len(x))[:, None], index] = x
    return filled


def place_tokens_backward(dy, index):
    rows = np.arange(len(dy))[:, None]
    others = dy.copy()
    others[rows, index] = 0
    return dy[rows, index], others.sum((0, 1), keepdims=True)


def l2_normalise_backward(dy, x):
    norm = np.sqrt((x * x).sum(-1, keepdims=True))
    y = x / norm
    return (dy - y * (dy * y).sum(-1, keepdims=True)) / norm


def dino_loss_backward(logits, teacher, temperature):
    q = np.exp((logits - logits.max(-1, keepdims=True)) / temperature)
    q /= q.sum(-1, keepdims=True)
    B, V, _ = logits.shape
    dlogits = np.zeros_like(logits)
    for v in range(V):
        for t in range(2):
            if t != v:
                dlogits[:, v] += (q[:, v] - teacher[:, t]) / (temperature * B * (2 * V - 2))
    return dlogits


def embedding_backward(dy, index, count):
    rows = np.zeros((count, dy.shape[-1]))
    np.add.at(rows, index, dy)
    return rows


def similarity_backward(dy, images, texts, scale):
    logits = np.exp(scale) * images @ texts.T
    return np.exp(scale) * dy @ texts, np.exp(scale) * dy.T @ images, (dy * logits).sum()


def contrastive_loss_backward(logits):
    rows = np.exp(logits - logits.max(1, keepdims=True))
    columns = np.exp(logits - logits.max(0, keepdims=True))
    p, q = rows / rows.sum(1, keepdims=True), columns / columns.sum(0, keepdims=True)
    return (p + q - 2 * np.eye(len(logits))) / (2 * len(logits))


def zero_shot(images, prompts):
    classes = prompts.mean(1)
    classes = classes / np.sqrt((classes * classes).sum(1, keepdims=True))
    return images @ classes.T


def tubelets(videos, tubelet):
    (B, C, T, H, W), (S, P, Q) = videos.shape, tubelet
    cut = videos.reshape(B, C, T // S, S, H // P, P, W // Q, Q)
    cut = cut.transpose(0, 2, 4, 6, 1, 3, 5, 7)                                # (B, t, h, w, C, S, P, Q)
    return cut.reshape(B, (T // S) * (H // P) * (W // Q), C * S * P * Q)


def from_tubelets(tubelets, tubelet, size):
    (T, H, W), (S, P, Q) = size, tubelet
    x = tubelets.reshape(len(tubelets), T // S, H // P, W // Q, -1, S, P, Q)
    x = x.transpose(0, 4, 1, 5, 2, 6, 3, 7)                                    # (B, C, t, S, h, P, w, Q)
    return x.reshape(len(tubelets), -1, T, H, W)


def inflate(weight, frames):
    D, C, P, Q = weight.shape
    inflated = np.zeros((D, C, frames, P, Q))
    inflated[:, :, frames // 2] = weight
    return inflated


def add_noise(x, noise, level):
    level = level.reshape(-1, 1, 1, 1)
    return np.sqrt(level) * x + np.sqrt(1 - level) * noise


def ddim_step(x, noise, level, previous):
    image = (x - np.sqrt(1 - level) * noise) / np.sqrt(level)
    return np.sqrt(previous) * image + np.sqrt(1 - previous) * noise


def modulate_backward(dy, x, gain):
    return dy * (1 + gain[:, None]), dy.sum(1), (dy * x).sum(1)


def add_gated_backward(dy, branch, gate):
    return dy, dy * gate[:, None], (dy * branch).sum(1)


def embed_labels_backward(dy, labels, count):
    dweight = np.zeros((count, dy.shape[1]))
    for b, label in enumerate(labels):
        dweight[label] += dy[b]
    return dweight


def merge_tiles(m1, Z1, a1, m2, Z2, a2):
    m = np.maximum(m1, m2)
    f1, f2 = np.exp(m1 - m), np.exp(m2 - m)
    return (a1 * f1[:, None] + a2 * f2[:, None]) / (Z1 * f1 + Z2 * f2)[:, None]


def to_fragments(A):
    g, t = np.divmod(np.arange(32)[:, None], 4)
    rows = g + np.array([0, 0, 8, 8, 0, 0, 8, 8])
    columns = 2 * t + np.array([0, 1, 0, 1, 8, 9, 8, 9])
    return A[rows, columns]
