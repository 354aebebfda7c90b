"""A solution of every exercise, in plain NumPy, under the exercise's name and with its arguments.

Nothing is cached: a backward computes again what it needs. Composites call the solutions of their parts.
"""

import numpy as np

from tinyvit.exercises.solutions_of_convnets import (  # noqa: F401
    avg_pool2d_backward,
    batch_norm,
    batch_norm_backward,
    conv2d,
    conv2d_backward,
    depthwise_conv2d,
    depthwise_conv2d_backward,
    group_norm,
    group_norm_backward,
    max_pool2d,
    max_pool2d_backward,
    relu_backward,
    running_statistics,
    standardize_weight,
    standardize_weight_backward,
)
from tinyvit.exercises.solutions_of_the_family import (  # noqa: F401
    add_gated_backward,
    add_noise,
    contrastive_loss_backward,
    ddim_step,
    dino_loss_backward,
    distillation_backward,
    embed_labels_backward,
    embedding_backward,
    from_tubelets,
    inflate,
    l2_normalise_backward,
    merge_tiles,
    modulate_backward,
    place_tokens,
    place_tokens_backward,
    relative_bias,
    relative_bias_backward,
    scale_channels_backward,
    silu_backward,
    similarity_backward,
    to_fragments,
    tubelets,
    window_partition,
    window_reverse,
    zero_shot,
)


def scale_and_shift_backward(dy, x, weight):
    return dy * weight, (dy * x).sum((0, 1)), dy.sum((0, 1))


def centre_backward(dy):
    return dy - dy.mean(-1, keepdims=True)


def patchify(images, patch):
    (B, C, H, W), (P, Q) = images.shape, patch
    cut = images.reshape(B, C, H // P, P, W // Q, Q)
    return cut.transpose(0, 2, 4, 1, 3, 5).reshape(B, -1, C * P * Q)           # (B, rows, columns, C, P, Q)


def patchify_backward(dy, patch, img_size):
    (P, Q), (H, W) = patch, img_size
    C = dy.shape[2] // (P * Q)
    cut = dy.reshape(len(dy), H // P, W // Q, C, P, Q)
    return cut.transpose(0, 3, 1, 4, 2, 5).reshape(-1, C, H, W)


def embed(patches, weight, bias, cls_token, positions):
    tokens = linear(patches, weight, bias)
    first = np.repeat(cls_token, len(tokens), 0)
    return np.concatenate([first, tokens], 1) + positions


def embed_backward(dy, patches, weight):
    dpatches, dweight, dbias = linear_backward(dy[:, 1:], patches, weight)
    return dpatches, dweight, dbias, dy[:, :1].sum(0, keepdims=True), dy.sum(0, keepdims=True)


def linear(x, weight, bias):
    return x @ weight.T + bias


def linear_backward(dy, x, weight):
    dy_rows, x_rows = dy.reshape(-1, dy.shape[-1]), x.reshape(-1, x.shape[-1])
    return dy @ weight, dy_rows.T @ x_rows, dy_rows.sum(0)


def layernorm(x, weight, bias, eps):
    centred = x - x.mean(-1, keepdims=True)
    rstd = ((centred * centred).mean(-1, keepdims=True) + eps) ** -0.5
    xhat = centred * rstd
    return xhat * weight + bias


def layernorm_backward(dy, x, weight, eps):
    centred = x - x.mean(-1, keepdims=True)
    rstd = ((centred * centred).mean(-1, keepdims=True) + eps) ** -0.5
    xhat, g = centred * rstd, dy * weight
    mean_g, mean_gxhat = g.mean(-1, keepdims=True), (g * xhat).mean(-1, keepdims=True)
    dx = rstd * (g - mean_g - xhat * mean_gxhat)
    rows = tuple(range(x.ndim - 1))
    return dx, (dy * xhat).sum(rows), dy.sum(rows)


def rmsnorm(x, weight, eps):
    r = ((x * x).mean(-1, keepdims=True) + eps) ** -0.5
    return x * r * weight


def rmsnorm_backward(dy, x, weight, eps):
    r = ((x * x).mean(-1, keepdims=True) + eps) ** -0.5
    xhat, g = x * r, dy * weight
    mean_gxhat = (g * xhat).mean(-1, keepdims=True)
    dx = r * (g - xhat * mean_gxhat)
    return dx, (dy * xhat).sum(tuple(range(x.ndim - 1)))


def softmax(x):
    exps = np.exp(x - x.max(-1, keepdims=True))
    return exps / exps.sum(-1, keepdims=True)


def softmax_backward(dy, x):
    probs = softmax(x)
    return probs * (dy - (dy * probs).sum(-1, keepdims=True))


def attention(q, k, v):
    scores = q @ k.mT * q.shape[-1] ** -0.5
    probs = softmax(scores)
    return probs @ v


def attention_backward(dy, q, k, v):
    scale = q.shape[-1] ** -0.5
    scores = q @ k.mT * scale
    dv = softmax(scores).mT @ dy
    dprobs = dy @ v.mT
    dscores = softmax_backward(dprobs, scores) * scale
    return dscores @ k, dscores.mT @ q, dv


def split_heads(x, num_heads):
    B, N, D = x.shape
    return x.reshape(B, N, num_heads, D // num_heads).transpose(0, 2, 1, 3)    # (B, H, N, d)


def join_heads(x):
    B, H, N, d = x.shape
    return x.transpose(0, 2, 1, 3).reshape(B, N, H * d)


def multi_head_attention(x, qkv_weight, qkv_bias, proj_weight, proj_bias, num_heads):
    qkv = linear(x, qkv_weight, qkv_bias)
    q, k, v = (split_heads(part, num_heads) for part in np.split(qkv, 3, -1))
    heads = join_heads(attention(q, k, v))
    return linear(heads, proj_weight, proj_bias)


def multi_head_attention_backward(dy, x, qkv_weight, qkv_bias, proj_weight, num_heads):
    qkv = linear(x, qkv_weight, qkv_bias)
    q, k, v = (split_heads(part, num_heads) for part in np.split(qkv, 3, -1))
    heads = join_heads(attention(q, k, v))
    dheads, dproj_weight, dproj_bias = linear_backward(dy, heads, proj_weight)
    dq, dk, dv = attention_backward(split_heads(dheads, num_heads), q, k, v)
    dqkv = np.concatenate([join_heads(part) for part in (dq, dk, dv)], -1)
    dx, dqkv_weight, dqkv_bias = linear_backward(dqkv, x, qkv_weight)
    return dx, dqkv_weight, dqkv_bias, dproj_weight, dproj_bias


def gelu(x):
    from scipy.special import erfc

    cdf = 0.5 * erfc(-x * 0.5**0.5)
    return x * cdf


def gelu_backward(dy, x):
    from scipy.special import erfc

    cdf = 0.5 * erfc(-x * 0.5**0.5)
    pdf = np.exp(-0.5 * x * x) * (2 * np.pi) ** -0.5
    return dy * (cdf + x * pdf)


def mlp(x, weight1, bias1, weight2, bias2):
    a = gelu(linear(x, weight1, bias1))
    return linear(a, weight2, bias2)


def mlp_backward(dy, x, weight1, bias1, weight2):
    h = linear(x, weight1, bias1)
    da, dweight2, dbias2 = linear_backward(dy, gelu(h), weight2)
    dh = gelu_backward(da, h)
    return *linear_backward(dh, x, weight1), dweight2, dbias2


def block(x, parameters, num_heads, eps):
    p = parameters
    norm1 = p["norm1.weight"], p["norm1.bias"], eps
    norm2 = p["norm2.weight"], p["norm2.bias"], eps
    of_attention = [p[f"attn.{name}"] for name in ("qkv.weight", "qkv.bias", "proj.weight", "proj.bias")]
    of_mlp = [p[f"mlp.{name}"] for name in ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias")]
    a = layernorm(x, *norm1)
    x1 = x + multi_head_attention(a, *of_attention, num_heads)
    m = layernorm(x1, *norm2)
    return x1 + mlp(m, *of_mlp)


def block_backward(dy, x, parameters, num_heads, eps):
    p, g = parameters, {}
    a = layernorm(x, p["norm1.weight"], p["norm1.bias"], eps)
    of_attention = [p[f"attn.{name}"] for name in ("qkv.weight", "qkv.bias", "proj.weight", "proj.bias")]
    x1 = x + multi_head_attention(a, *of_attention, num_heads)
    m = layernorm(x1, p["norm2.weight"], p["norm2.bias"], eps)

    dm, *of_mlp = mlp_backward(dy, m, p["mlp.fc1.weight"], p["mlp.fc1.bias"], p["mlp.fc2.weight"])
    dm, g["norm2.weight"], g["norm2.bias"] = layernorm_backward(dm, x1, p["norm2.weight"], eps)
    dx1 = dy + dm
    da, *of_attention = multi_head_attention_backward(dx1, a, *of_attention[:3], num_heads)
    da, g["norm1.weight"], g["norm1.bias"] = layernorm_backward(da, x, p["norm1.weight"], eps)
    g |= zip(("mlp.fc1.weight", "mlp.fc1.bias", "mlp.fc2.weight", "mlp.fc2.bias"), of_mlp)
    g |= zip(("attn.qkv.weight", "attn.qkv.bias", "attn.proj.weight", "attn.proj.bias"), of_attention)
    return dx1 + da, g


def parameters_of_block(parameters, i):
    start = f"blocks.{i}."
    return {name.removeprefix(start): array for name, array in parameters.items() if name.startswith(start)}


def enter(images, parameters):
    """The patches, and the tokens that enter the first block."""
    p = parameters
    kernel = p["patch_embed.proj.weight"]                                      # (D, C, P, Q)
    patches = patchify(images, kernel.shape[2:])
    weight = kernel.reshape(len(kernel), -1)
    return patches, embed(patches, weight, p["patch_embed.proj.bias"], p["cls_token"], p["pos_embed"])


def vit(images, parameters, depth, num_heads, eps):
    p = parameters
    _, x = enter(images, p)
    for i in range(depth):
        x = block(x, parameters_of_block(p, i), num_heads, eps)
    x = layernorm(x, p["norm.weight"], p["norm.bias"], eps)
    return linear(x[:, 0], p["head.weight"], p["head.bias"])


def vit_backward(dy, images, parameters, depth, num_heads, eps):
    p, g = parameters, {}
    patches, x = enter(images, p)
    inputs = []                                                                # of each block
    for i in range(depth):
        inputs.append(x)
        x = block(x, parameters_of_block(p, i), num_heads, eps)
    normed = layernorm(x, p["norm.weight"], p["norm.bias"], eps)

    dnormed = np.zeros_like(normed)
    dnormed[:, 0], g["head.weight"], g["head.bias"] = linear_backward(dy, normed[:, 0], p["head.weight"])
    dx, g["norm.weight"], g["norm.bias"] = layernorm_backward(dnormed, x, p["norm.weight"], eps)
    for i in reversed(range(depth)):
        dx, of_block = block_backward(dx, inputs[i], parameters_of_block(p, i), num_heads, eps)
        g |= {f"blocks.{i}.{name}": array for name, array in of_block.items()}
    kernel = p["patch_embed.proj.weight"]
    dpatches, dkernel, *others = embed_backward(dx, patches, kernel.reshape(len(kernel), -1))
    g["patch_embed.proj.weight"] = dkernel.reshape(kernel.shape)
    g |= zip(("patch_embed.proj.bias", "cls_token", "pos_embed"), others)
    return patchify_backward(dpatches, kernel.shape[2:], images.shape[2:]), g


def worked_example_backward(patches):
    from tinyvit.models import worked_example as example

    cls_token = np.repeat(example.CLS_TOKEN, len(patches), 0)
    z0 = np.concatenate([cls_token, patches], 1) + example.POSITIONS
    z1 = z0 + attention(z0, z0, z0)
    feature = layernorm(z1, example.NORM_WEIGHT, example.NORM_BIAS, 1e-6)[:, 0]
    logits = linear(feature, example.HEAD_WEIGHT, example.HEAD_BIAS)

    dlogits = cross_entropy_backward(1.0, logits, example.LABEL, 0.0)
    dnormed = np.zeros_like(z1)
    dnormed[:, 0] = dlogits @ example.HEAD_WEIGHT
    dz1, _, _ = layernorm_backward(dnormed, z1, example.NORM_WEIGHT, 1e-6)
    dq, dk, dv = attention_backward(dz1, z0, z0, z0)
    dz0 = dz1 + dq + dk + dv
    return dz0[:, 1:], dz0[:, :1].sum(0, keepdims=True)


def cross_entropy(logits, labels, label_smoothing):
    shifted = logits - logits.max(-1, keepdims=True)
    log_probs = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    B, K = logits.shape
    targets = np.full((B, K), label_smoothing / K)
    targets[np.arange(B), labels] += 1 - label_smoothing
    return -(targets * log_probs).sum(-1).mean()


def cross_entropy_backward(dy, logits, labels, label_smoothing):
    B, K = logits.shape
    targets = np.full((B, K), label_smoothing / K)
    targets[np.arange(B), labels] += 1 - label_smoothing
    probs = softmax(logits)
    return dy * (probs - targets) / B


def adam(theta, g, m, v, t, lr, beta1, beta2, eps):
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g * g
    m_hat, v_hat = m / (1 - beta1**t), v / (1 - beta2**t)
    return theta - lr * m_hat / (v_hat**0.5 + eps), m, v


def schedule(step, total, warmup):
    if step < warmup:
        return (step + 1) / warmup
    return min(1.0, (total - step) / (0.2 * total))


def cutmix(image, target, partner, partner_target, box):
    top, bottom, left, right = box
    mixed = image.copy()
    mixed[:, top:bottom, left:right] = partner[:, top:bottom, left:right]
    share = (bottom - top) * (right - left) / image[0].size
    return mixed, (1 - share) * target + share * partner_target


def rollout(attention):
    result = identity = np.eye(attention.shape[-1])
    mixed = 0.5 * attention.mean(2) + 0.5 * identity                           # (L, B, N, N)
    for layer in mixed:
        result = layer @ result
    return result


def derivative(f, x):
    return f(x + 1e-20j).imag / 1e-20


def softmax_merge(m1, l1, m2, l2):
    m = max(m1, m2)
    return m, l1 * np.exp(m1 - m) + l2 * np.exp(m2 - m)


def kahan_sum(numbers):
    total = lost = np.float32(0)
    for number in numbers:
        rest = number - lost
        new = total + rest
        lost = (new - total) - rest
        total = new
    return total


def bicubic(old, new):
    a, rows, matrix = -0.75, np.arange(new), np.zeros((new, old))
    places = (np.arange(new) + 0.5) * old / new - 0.5
    for offset in (-1, 0, 1, 2):
        neighbours = np.floor(places) + offset
        t = abs(places - neighbours)
        near = (a + 2) * t**3 - (a + 3) * t**2 + 1
        far = a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a
        columns = np.clip(neighbours, 0, old - 1).astype(int)
        matrix[rows, columns] += np.where(t <= 1, near, far)
    return matrix


def resize_backward(dy, down, across):
    return np.einsum("Rr,Kk,RKd->rkd", down, across, dy)
