"""A whole Vision Transformer on one page: forward, backward, Adam, and handwritten digits to train on.

    python -m tinyvit.minimal

Each function returns its result and a cache of what its backward needs. The backward follows at once: it takes dy, the
gradient of the loss with respect to the result, and the cache, and returns the gradients with respect to the arguments.
NumPy does the arithmetic, and nothing is imported from the package. In the shapes, B is images, N tokens, D their
width, H heads of width d = D/H, C channels, P the side of a patch, K classes.

The model is that of Dosovitskiy et al. 2021. GELU has the form with tanh, since NumPy has no erf.
"""

from typing import NamedTuple

import numpy as np


class Config(NamedTuple):
    img_size: int = 8
    patch_size: int = 4
    channels: int = 1
    classes: int = 10
    dim: int = 64
    depth: int = 3
    heads: int = 4
    hidden: int = 128


def linear(x, weight, bias):
    """y = x Wᵀ + b, for x (..., D) and W (E, D)."""
    return x @ weight.T + bias, (x, weight)


def linear_backward(dy, cache):
    """dx = dy W, dW = dyᵀ x summed over all rows, db = dy summed over all rows."""
    x, weight = cache
    dy_rows, x_rows = dy.reshape(-1, dy.shape[-1]), x.reshape(-1, x.shape[-1])
    return dy @ weight, dy_rows.T @ x_rows, dy_rows.sum(0)


def layernorm(x, weight, bias, eps=1e-6):
    """y = x̂ γ + β, where x̂ is x (..., D) shifted and scaled to mean 0 and variance 1 over D."""
    centred = x - x.mean(-1, keepdims=True)
    rstd = ((centred * centred).mean(-1, keepdims=True) + eps) ** -0.5         # 1 / standard deviation
    xhat = centred * rstd
    return xhat * weight + bias, (xhat, rstd, weight)


def layernorm_backward(dy, cache):
    """With g = dy γ: dx = (g − mean(g) − x̂ mean(g x̂)) / std. The means are the paths through x's mean and variance."""
    xhat, rstd, weight = cache
    g = dy * weight
    dx = rstd * (g - g.mean(-1, keepdims=True) - xhat * (g * xhat).mean(-1, keepdims=True))
    rows = tuple(range(dy.ndim - 1))
    return dx, (dy * xhat).sum(rows), dy.sum(rows)


def softmax(x):
    """p = exp(x) / Σ exp(x), over the last axis; the largest x is taken off first, so that exp can't overflow."""
    exps = np.exp(x - x.max(-1, keepdims=True))
    probs = exps / exps.sum(-1, keepdims=True)
    return probs, probs


def softmax_backward(dy, probs):
    """dx = p (dy − Σ dy p): only differences between the dy of a row matter, as its p always add up to 1."""
    return probs * (dy - (dy * probs).sum(-1, keepdims=True))


def attention(q, k, v):
    """y = softmax(q kᵀ / √d) v, for q, k, v (B, H, N, d): each token gets a mean of all values, weighted by match."""
    scale = q.shape[-1] ** -0.5
    probs, c_softmax = softmax(q @ k.mT * scale)                               # (B, H, N, N)
    return probs @ v, (q, k, v, c_softmax, scale)


def attention_backward(dy, cache):
    """From the last product back to the first: dv = pᵀ dy, dp = dy vᵀ, ds from dp, dq = ds k / √d, dk = dsᵀ q / √d."""
    q, k, v, probs, scale = cache
    dscores = softmax_backward(dy @ v.mT, probs) * scale
    return dscores @ k, dscores.mT @ q, probs.mT @ dy


def gelu(x):
    """y = x (1 + tanh(u)) / 2 with u = √(2/π) (x + 0.044715 x³): about x for a large x, about 0 for a small one."""
    t = np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x * x * x))
    return 0.5 * x * (1 + t), (x, t)


def gelu_backward(dy, cache):
    """The product rule: dx = dy ((1 + t)/2 + x (1 − t²)/2 · du/dx), since the slope of tanh is 1 − tanh²."""
    x, t = cache
    du = (2 / np.pi) ** 0.5 * (1 + 3 * 0.044715 * x * x)
    return dy * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * du)


def cross_entropy(logits, labels):
    """The mean of −log p[label] over the batch, with p = softmax(logits)."""
    shifted = logits - logits.max(-1, keepdims=True)
    log_probs = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return -log_probs[np.arange(len(labels)), labels].mean(), (log_probs, labels)


def cross_entropy_backward(cache):
    """dlogits = (p − 1[label]) / B: what the model says less what is true."""
    log_probs, labels = cache
    dlogits = np.exp(log_probs)
    dlogits[np.arange(len(labels)), labels] -= 1
    return dlogits / len(labels)


def multi_head_attention(x, w, name, heads):
    """One linear map gives q, k and v of every head; attention within each head; one more linear map mixes them."""
    B, N, D = x.shape
    qkv, c_qkv = linear(x, w[name + "qkv.weight"], w[name + "qkv.bias"])       # (B, N, 3D)
    q, k, v = qkv.reshape(B, N, 3, heads, D // heads).transpose(2, 0, 3, 1, 4) # each (B, H, N, d)
    y, c_attention = attention(q, k, v)
    y = y.transpose(0, 2, 1, 3).reshape(B, N, D)
    y, c_proj = linear(y, w[name + "proj.weight"], w[name + "proj.bias"])
    return y, (c_qkv, c_attention, c_proj)


def multi_head_attention_backward(dy, cache, grads, name):
    """Every rearrangement is undone by its inverse; the gradients of the parameters go into `grads`."""
    c_qkv, c_attention, c_proj = cache
    dy, grads[name + "proj.weight"], grads[name + "proj.bias"] = linear_backward(dy, c_proj)
    (B, N, D), q = dy.shape, c_attention[0]
    dy = dy.reshape(B, N, *q.shape[1::2]).transpose(0, 2, 1, 3)                # (B, H, N, d)
    dqkv = np.stack(attention_backward(dy, c_attention))                       # (3, B, H, N, d)
    dqkv = dqkv.transpose(1, 3, 0, 2, 4).reshape(B, N, 3 * D)
    dx, grads[name + "qkv.weight"], grads[name + "qkv.bias"] = linear_backward(dqkv, c_qkv)
    return dx


def block(x, w, name, heads):
    """x + attention(norm(x)), and to that the MLP of its norm: each layer adds to what was there before."""
    a, c_norm1 = layernorm(x, w[name + "norm1.weight"], w[name + "norm1.bias"])
    a, c_attn = multi_head_attention(a, w, name + "attn.", heads)
    x = x + a
    m, c_norm2 = layernorm(x, w[name + "norm2.weight"], w[name + "norm2.bias"])
    m, c_fc1 = linear(m, w[name + "mlp.fc1.weight"], w[name + "mlp.fc1.bias"])
    m, c_gelu = gelu(m)
    m, c_fc2 = linear(m, w[name + "mlp.fc2.weight"], w[name + "mlp.fc2.bias"])
    return x + m, (c_norm1, c_attn, c_norm2, c_fc1, c_gelu, c_fc2)


def block_backward(dy, cache, grads, name):
    """The forward, read from the bottom up. Where x goes two ways, its gradients add up."""
    c_norm1, c_attn, c_norm2, c_fc1, c_gelu, c_fc2 = cache
    dm, grads[name + "mlp.fc2.weight"], grads[name + "mlp.fc2.bias"] = linear_backward(dy, c_fc2)
    dm = gelu_backward(dm, c_gelu)
    dm, grads[name + "mlp.fc1.weight"], grads[name + "mlp.fc1.bias"] = linear_backward(dm, c_fc1)
    dm, grads[name + "norm2.weight"], grads[name + "norm2.bias"] = layernorm_backward(dm, c_norm2)
    dx = dy + dm
    da = multi_head_attention_backward(dx, c_attn, grads, name + "attn.")
    da, grads[name + "norm1.weight"], grads[name + "norm1.bias"] = layernorm_backward(da, c_norm1)
    return dx + da


def vit(images, w, config):
    """Logits (B, K) of images (B, C, H, W): patches, class token, positions, blocks, norm, head."""
    (B, C, height, width), P = images.shape, config.patch_size
    patches = images.reshape(B, C, height // P, P, width // P, P).transpose(0, 2, 4, 1, 3, 5).reshape(B, -1, C * P * P)
    kernel = w["patch_embed.proj.weight"]                                      # (D, C, P, P)
    x, c_embed = linear(patches, kernel.reshape(len(kernel), -1), w["patch_embed.proj.bias"])
    x = np.concatenate([np.repeat(w["cls_token"], B, 0), x], 1) + w["pos_embed"]   # (B, N+1, D)
    c_blocks = []
    for i in range(config.depth):
        x, c_block = block(x, w, f"blocks.{i}.", config.heads)
        c_blocks.append(c_block)
    x, c_norm = layernorm(x, w["norm.weight"], w["norm.bias"])
    logits, c_head = linear(x[:, 0], w["head.weight"], w["head.bias"])
    return logits, (c_embed, c_blocks, c_norm, c_head, x.shape, kernel.shape)


def vit_backward(dlogits, cache):
    """The gradient of the loss with respect to every parameter, by its name."""
    c_embed, c_blocks, c_norm, c_head, shape, kernel_shape = cache
    grads, dx = {}, np.zeros(shape, dlogits.dtype)
    dx[:, 0], grads["head.weight"], grads["head.bias"] = linear_backward(dlogits, c_head)
    dx, grads["norm.weight"], grads["norm.bias"] = layernorm_backward(dx, c_norm)
    for i in reversed(range(len(c_blocks))):
        dx = block_backward(dx, c_blocks[i], grads, f"blocks.{i}.")
    grads["pos_embed"] = dx.sum(0, keepdims=True)
    grads["cls_token"] = dx[:, :1].sum(0, keepdims=True)
    _, dkernel, grads["patch_embed.proj.bias"] = linear_backward(dx[:, 1:], c_embed)
    grads["patch_embed.proj.weight"] = dkernel.reshape(kernel_shape)
    return grads


def adam_step(w, grads, m, v, t, lr, betas=(0.9, 0.999), eps=1e-8):
    """Step t = 1, 2, … of Adam, in place: θ ← θ − lr m̂ / (√v̂ + ε). Kingma & Ba 2015, algorithm 1."""
    for name, g in grads.items():
        m[name] = betas[0] * m[name] + (1 - betas[0]) * g
        v[name] = betas[1] * v[name] + (1 - betas[1]) * g * g
        m_hat, v_hat = m[name] / (1 - betas[0] ** t), v[name] / (1 - betas[1] ** t)
        w[name] -= lr * m_hat / (v_hat**0.5 + eps)


def init(config, rng, dtype="float32"):
    """Parameters by name: random weights, biases 0, norms 1, and a head of 0, so that all classes begin equal."""
    D, E, P = config.dim, config.hidden, config.patch_size
    shapes = {"cls_token": (1, 1, D), "pos_embed": (1, (config.img_size // P) ** 2 + 1, D)}
    shapes["patch_embed.proj.weight"] = (D, config.channels, P, P)
    for i in range(config.depth):
        layers = {"norm1": (D,), "attn.qkv": (3 * D, D), "attn.proj": (D, D)}
        layers |= {"norm2": (D,), "mlp.fc1": (E, D), "mlp.fc2": (D, E)}
        shapes |= {f"blocks.{i}.{layer}.weight": shape for layer, shape in layers.items()}
    shapes |= {"norm.weight": (D,), "head.weight": (config.classes, D)}
    w = {name: rng.normal(0, 0.1, shape).astype(dtype) for name, shape in shapes.items()}
    for name in [name for name in w if name.endswith(".weight")]:
        w[name.replace("weight", "bias")] = np.zeros(len(w[name]), dtype)
        if "norm" in name or "head" in name:
            w[name][:] = "norm" in name
    return w


def digits():
    """1,797 real digits: images (n, 1, 8, 8) and labels (n,), four in five to train on, the rest for the test."""
    from sklearn.datasets import load_digits
    source = load_digits()
    is_test = np.arange(len(source.target)) % 5 == 0
    mean, std = source.images[~is_test].mean(), source.images[~is_test].std()
    images = ((source.images - mean) / std).astype("float32")[:, None]
    return (images[~is_test], source.target[~is_test]), (images[is_test], source.target[is_test])


def train(steps=2200, batch_size=64, lr=2e-3, seed=0):
    """Train on the digits with a warm-up and a cosine schedule, and print the accuracy on the test images."""
    config, rng = Config(), np.random.default_rng(seed)
    w = init(config, rng)
    m, v = ({name: np.zeros_like(x) for name, x in w.items()} for _ in range(2))
    (images, labels), (test_images, test_labels) = digits()
    for t in range(1, steps + 1):
        rows = rng.choice(len(images), batch_size, replace=False)
        shifts = rng.integers(-1, 2, (batch_size, 2))                          # each image by up to a pixel
        shifted = np.stack([np.roll(image, shift, (1, 2)) for image, shift in zip(images[rows], shifts)])
        logits, cache = vit(shifted, w, config)
        loss, c_loss = cross_entropy(logits, labels[rows])
        grads = vit_backward(cross_entropy_backward(c_loss), cache)
        adam_step(w, grads, m, v, t, lr * min(1, 10 * t / steps) * (1 + float(np.cos(np.pi * t / steps))) / 2)
        if t % 100 == 0:
            print(f"step {t:4d}  loss {loss:.3f}")
    predicted = vit(test_images, w, config)[0].argmax(1)
    print(f"test_accuracy {(predicted == test_labels).mean():.4f}")
    return w


if __name__ == "__main__":
    train()
