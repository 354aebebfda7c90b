"""A layer that normalises with running statistics, as batch normalisation does in evaluation, and updates them while
it trains; its forward doesn't mix samples, so how a batch was split must not matter."""

from typing import NamedTuple

from strategies import redrawn

from tinyvit import ViT, ViTConfig, nn
from tinyvit import functional as F

MOMENTUM = 0.25


class NormCache(NamedTuple):
    scale: object
    update: object


class RunningNorm(nn.Module):
    """(x − mean) / √(variance + 0.1), with the running mean and variance of every channel of x (..., D)."""

    def __init__(self, dim):
        self.mean = nn.Buffer((dim,), nn.init.zeros)
        self.variance = nn.Buffer((dim,), nn.init.ones)
        self.commits = 0

    def forward(self, x, ctx=None):
        scale = (self.variance.value + 0.1) ** -0.5
        exact, axes, update = F.cast(x, scale.dtype), tuple(range(x.ndim - 1)), None
        if ctx is not None and ctx.training:
            update = nn.BufferUpdate(self, {"mean": exact.mean(axes), "square": (exact * exact).mean(axes)})
        return F.cast((exact - self.mean.value) * scale, x.dtype), NormCache(scale, update)

    def backward(self, dy, cache):
        return F.cast(F.cast(dy, cache.scale.dtype) * cache.scale, dy.dtype)

    def commit(self, statistics):
        mean, square = statistics["mean"], statistics["square"]
        self.commits += 1
        self.mean.data = (1 - MOMENTUM) * self.mean.data + MOMENTUM * mean
        self.variance.data = (1 - MOMENTUM) * self.variance.data + MOMENTUM * (square - mean * mean)


def vit_with_running_norm(dtype="float64", device="cpu", precision=None, **fields):
    """A small ViT that normalises twice per block with running statistics."""
    shape = dict(img_size=4, patch_size=2, in_chans=2, num_classes=3, embed_dim=8, depth=2, num_heads=2)
    model = ViT(ViTConfig(**shape | fields), device="meta")
    for block in model.blocks:
        block.norm1, block.drop_path2 = RunningNorm(8), RunningNorm(8)
    return redrawn(model.materialize(dtype=dtype, device=device, precision=precision), std=0.3)


def norms(model):
    return [module for _, module in model.named_modules() if isinstance(module, RunningNorm)]


def squares(model, images, targets, ctx):
    """An objective that passes buffer updates on: the mean square of the logits."""
    logits, cache = model(images, ctx)
    updates = nn.buffer_updates(cache)
    exact = F.cast(logits, model.dtype)
    loss, dlogits = (exact * exact).sum(1).mean(), 2 * exact / len(exact)
    return loss, lambda dloss: model.backward(F.cast(dloss * dlogits, logits.dtype), cache), {}, updates
