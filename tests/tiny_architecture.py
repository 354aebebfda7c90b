"""An architecture unknown to the package: two prefix tokens, no blocks, no attention, a buffer.

A layer adds to every token a projection of the mean over all tokens, and an MLP of its own. Importing this file
registers "tiny", and the model "tiny_8".
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from tinyvit import functional as F
from tinyvit import nn
from tinyvit.functional.patches import as_pair, grid_of
from tinyvit.models import register, variant
from tinyvit.models.architecture import Architecture
from tinyvit.nn.block import Mlp
from tinyvit.nn.head import linear_head, token_pool
from tinyvit.nn.patch_embed import PatchEmbed
from tinyvit.nn.positions import LearnedPositions
from tinyvit.validation import Count, PositiveInt, validate

MOMENTUM = 0.25


@dataclass(frozen=True)
class TinyConfig:
    """The shape of a tiny model."""

    img_size: int | tuple[int, int] = 8
    """Side of the images."""
    in_chans: PositiveInt = 1
    """Channels of the images."""
    num_classes: Count = 10
    """Classes."""
    width: PositiveInt = 12
    """Width of a token."""
    layers: PositiveInt = 3
    """Layers."""

    def __post_init__(self):
        validate(self)


class StemCache(NamedTuple):
    patch_embed: Any
    prefix: tuple
    positions: Any
    update: nn.BufferUpdate | None


class Stem(nn.Module):
    """Images (B, C, H, W) into tokens (B, 2+N, D): patches less their running mean, two tokens in front, positions."""

    def __init__(self, config):
        self.patch_embed = PatchEmbed(4, config.in_chans, config.width)
        self.running_mean = nn.Buffer((config.width,), nn.init.zeros)
        self.first = nn.Parameter((1, 1, config.width), nn.init.normal(0.5), decay=False)
        self.second = nn.Parameter((1, 1, config.width), nn.init.normal(0.5), decay=False)
        self.positions = LearnedPositions(grid_of(as_pair(config.img_size), (4, 4)), config.width, prefix=2)

    def forward(self, images, ctx=None):
        images = images if images.dtype.kind == "c" else F.cast(images, self.storage.compute_dtype)
        tokens, c_patch = self.patch_embed(images, ctx)                        # (B, N, D)
        update = None
        if ctx is not None and ctx.training:
            update = nn.BufferUpdate(self, {"mean": tokens.mean((0, 1))})
        tokens = tokens - self.running_mean.value
        tokens, c_second = F.prepend_token(tokens, self.second.value)          # (B, 1+N, D)
        tokens, c_first = F.prepend_token(tokens, self.first.value)            # (B, 2+N, D)
        tokens, c_positions = self.positions(tokens, ctx)
        return tokens, StemCache(c_patch, (c_first, c_second), c_positions, update)

    def backward(self, dtokens, cache):
        c_first, c_second = cache.prefix
        dtokens = self.positions.backward(dtokens, cache.positions)
        with self.gradients() as (first, second):
            dtokens, _ = F.prepend_token_backward(dtokens, c_first, into=(first,))
            dtokens, _ = F.prepend_token_backward(dtokens, c_second, into=(second,))
        return self.patch_embed.backward(dtokens, cache.patch_embed)

    def commit(self, statistics):
        self.running_mean.data = (1 - MOMENTUM) * self.running_mean.data + MOMENTUM * statistics["mean"]


class LayerCache(NamedTuple):
    share: Any
    norm: Any
    mlp: Any


class Layer(nn.Module):
    """x + W mean(x), and to that its MLP(LayerNorm(·))."""

    def __init__(self, width):
        self.share = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.mlp = Mlp(width, 2 * width)

    def forward(self, x, ctx=None):
        shared, c_share = self.share(x.mean(1), ctx)                           # (B, D)
        x = x + shared[:, None]
        m, c_norm = self.norm(x, ctx)
        m, c_mlp = self.mlp(m, ctx)
        return x + m, LayerCache(c_share, c_norm, c_mlp)

    def backward(self, dy, cache):
        dm = self.mlp.backward(dy, cache.mlp)
        dx = dy + self.norm.backward(dm, cache.norm)
        dmean = self.share.backward(dx.sum(1), cache.share)
        return dx + dmean[:, None] * (1 / dx.shape[1])


@register("tiny", TinyConfig)
class Tiny(Architecture):
    """Its forward and backward are those of its parts, one after the other."""

    num_prefix_tokens = 2

    def assemble(self, config):
        self.stem = Stem(config)
        self.floors = [Layer(config.width) for _ in range(config.layers)]
        self.pool = token_pool("avg", self.num_prefix_tokens)
        self.readout = linear_head(config.width, config.num_classes)

    @property
    def grid(self):
        return grid_of(as_pair(self.config.img_size), (4, 4))

    @property
    def depth(self):
        return len(self.floors)


variant("tiny_8", "tiny", img_size=8)
