"""The forward pass of the original release, written in PyTorch on arrays in the release's own layout.

From the definitions of Dosovitskiy et al. 2021 and of Flax's layers: kernels are (in, out), a convolution's (height,
width, in, out), and attention's (D, H, d). It shares no code with tinyvit.
"""

import torch
from torch.nn import functional as T


def layer_norm(arrays, path, x, eps=1e-6):
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, unbiased=False, keepdim=True)
    return (x - mean) / torch.sqrt(variance + eps) * arrays[f"{path}/scale"] + arrays[f"{path}/bias"]


def dense(arrays, path, x):
    return x @ arrays[f"{path}/kernel"] + arrays[f"{path}/bias"]


def attention(arrays, path, x):
    q, k, v = (
        torch.einsum("bnD,Dhd->bnhd", x, arrays[f"{path}/{part}/kernel"]) + arrays[f"{path}/{part}/bias"]
        for part in ("query", "key", "value")
    )
    probs = torch.softmax(torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5, -1)
    mixed = torch.einsum("bhqk,bkhd->bqhd", probs, v)
    return torch.einsum("bnhd,hdD->bnD", mixed, arrays[f"{path}/out/kernel"]) + arrays[f"{path}/out/bias"]


def block(arrays, path, x):
    x = x + attention(arrays, f"{path}/MultiHeadDotProductAttention_1", layer_norm(arrays, f"{path}/LayerNorm_0", x))
    y = layer_norm(arrays, f"{path}/LayerNorm_2", x)
    y = T.gelu(dense(arrays, f"{path}/MlpBlock_3/Dense_0", y), approximate="tanh")
    return x + dense(arrays, f"{path}/MlpBlock_3/Dense_1", y)


def patches(arrays, images):
    """Images (B, C, H, W) as tokens (B, N, D): Flax's convolution whose stride is its kernel, in row-major order."""
    kernel = arrays["embedding/kernel"]                                                     # (P, Q, C, D)
    p, q, _, _ = kernel.shape
    batch, channels, height, width = images.shape
    tiles = images.reshape(batch, channels, height // p, p, width // q, q)
    return torch.einsum("bcypxq,pqcD->byxD", tiles, kernel).flatten(1, 2) + arrays["embedding/bias"]


def logits(arrays, images, pool="token"):
    """The logits (B, K); the features where there is no head. `pool` "avg" is the mean over the patches instead."""
    tokens = patches(arrays, images)
    tokens = torch.cat([arrays["cls"].expand(len(images), -1, -1), tokens], 1)
    tokens = tokens + arrays["Transformer/posembed_input/pos_embedding"]
    depth = len({name.split("/")[1] for name in arrays if name.startswith("Transformer/encoderblock_")})
    for i in range(depth):
        tokens = block(arrays, f"Transformer/encoderblock_{i}", tokens)
    tokens = layer_norm(arrays, "Transformer/encoder_norm", tokens)
    features = tokens[:, 0] if pool == "token" else tokens[:, 1:].mean(1)
    if "pre_logits/kernel" in arrays:
        features = torch.tanh(dense(arrays, "pre_logits", features))
    return dense(arrays, "head", features) if "head/kernel" in arrays else features
