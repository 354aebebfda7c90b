"""Qwen2.5-VL's vision encoder: a ViT for images of any size, several of them in one row of tokens.

Bai et al. 2025, "Qwen2.5-VL technical report", section 2.1.1.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, pairwise
from math import inf, prod
from typing import Annotated, NamedTuple

import numpy as np

from tinyvit import functional as F
from tinyvit.arrays import Array, array_module
from tinyvit.functional.patches import as_pair
from tinyvit.models.architecture import Architecture, as_input, image_shape
from tinyvit.models.convnet import ConvNet
from tinyvit.models.registry import register, variant
from tinyvit.models.vit_config import MAX_BLOCKS
from tinyvit.nn.attention import Attention, SelfAttentionCache
from tinyvit.nn.block import Block, GatedMlp
from tinyvit.nn.chain import Chain, Operation
from tinyvit.nn.context import Context
from tinyvit.nn.head import linear_head
from tinyvit.nn.layers import Linear, RMSNorm
from tinyvit.nn.module import Module
from tinyvit.nn.patch_embed import PatchProjection
from tinyvit.nn.tree import cache_type
from tinyvit.validation import Count, NotNegative, PositiveInt, Range, Sides, Width, validate


@dataclass(frozen=True)
class QwenVisionConfig:
    """The shape of a Qwen2.5-VL vision encoder. Raises ValueError for a shape that can't be built."""

    img_size: Sides = 32
    """Side of the images in pixels, or height and width, where nothing else is said; all others are read, too."""
    row_tokens: PositiveInt | None = None
    """Patches at most of a row of images; a training then leaves each image its own size. Without it all are resized to
    one size."""
    patch_size: PositiveInt = 4
    """Side of a patch in pixels."""
    tubelet_frames: PositiveInt = 1
    """Frames that a patch goes through; an image is a video of this many equal ones."""
    in_chans: PositiveInt = 3
    """Channels of the images (C)."""
    num_classes: Count = 10
    """Classes (K); with 0 there is no last layer, and the model returns the mean of each image's merged tokens."""
    embed_dim: Width = 64
    """Width of a token (D)."""
    depth: Annotated[int, Range(1, MAX_BLOCKS)] = 4
    """Blocks (L)."""
    num_heads: PositiveInt = 4
    """Attention heads (H); they divide embed_dim, into heads whose width is a multiple of 4."""
    mlp_hidden: Width = 96
    """Width of the MLP's hidden layer."""
    window_size: PositiveInt = 16
    """Side of a window in pixels, in which tokens see each other."""
    full_attention: tuple[Count, ...] = (1, 3)
    """Numbers of the blocks, from 0, in which all tokens of an image see each other."""
    merge_size: PositiveInt = 2
    """Side of the square of tokens that become one at the end."""
    out_dim: Width = 32
    """Width of a merged token."""
    norm_eps: NotNegative = 1e-6
    """ε of the norms."""

    def __post_init__(self):
        validate(self)
        if self.embed_dim % (4 * self.num_heads):
            raise ValueError(f"embed_dim {self.embed_dim} must be {self.num_heads} heads with a multiple of 4 numbers")
        if self.window_size < self.unit:
            raise ValueError(f"window_size {self.window_size} must be at least patch_size · merge_size = {self.unit}")
        if any(number >= self.depth for number in self.full_attention):
            raise ValueError(f"full_attention must name blocks from 0 to {self.depth - 1}, got {self.full_attention}")
        self.grid_of(as_pair(self.img_size))

    @property
    def unit(self):
        """Side in pixels of the square that becomes one merged token: it divides the sides of every image."""
        return self.patch_size * self.merge_size

    def nearest_size(self, height, width):
        """The (height, width) nearest to these that units divide; ValueError for an image that is longer than a row."""
        nearest = tuple(max(1, round(side / self.unit)) * self.unit for side in (height, width))
        count = prod(nearest) // self.patch_size**2
        if self.row_tokens is not None and count > self.row_tokens:
            raise ValueError(f"an image of {height}×{width} pixels has {count:,} patches, and a row at most "
                             f"{self.row_tokens:,}; make images smaller, or rows longer by row_tokens")  # fmt: skip
        return nearest

    def grid_of(self, size):
        """(rows, columns) of the patches of images (height, width); ValueError for sides that units don't divide."""
        nearest = self.nearest_size(*size)
        if size != nearest:
            raise ValueError(f"image size {size[0]}×{size[1]} is not a multiple of patch_size · merge_size = "
                             f"{self.unit}; resize to {nearest[0]}×{nearest[1]}")  # fmt: skip
        return tuple(side // self.patch_size for side in size)

    def row_of(self, sizes):
        """The `RowLayout` of images with these (height, width)."""
        return row_layout(tuple(map(self.grid_of, sizes)), self.merge_size, self.window_size // self.unit)


class RowLayout(NamedTuple):
    """The places of the patches of several images in one row: image by image, in each of them window by window.

    A window's units of merge_size × merge_size patches follow each other row by row, and so do a unit's patches.
    """

    order: Array      # (N,)  of each patch, its number when those of every image are counted row by row
    positions: Array  # (N, 2)  its row and column
    restore: Array    # (M,)  of each merged token, its place in the row when those of every image follow row by row
    images: tuple     # at which patches images begin and end: (0, …, N)
    windows: tuple    # likewise windows
    merged: tuple     # at which merged tokens images begin and end: (0, …, M)


@lru_cache(maxsize=64)
def row_layout(grids, merge, window):
    """The `RowLayout` of images with `grids` ((rows, columns), …) of patches, and windows of `window` units a side.

    Windows begin at the upper left; those at the right and lower edges are as small as what is left. Nothing is padded.
    """
    image = np.repeat(np.arange(len(grids)), np.prod(grids, axis=1))           # (N,)
    row, column = np.concatenate([np.indices(grid).reshape(2, -1) for grid in grids], axis=1)
    unit = np.stack([image, row // merge, column // merge])                    # (3, N)
    place = np.stack([image, unit[1] // window, unit[2] // window])            # (3, N)  of its window
    order = np.lexsort((column, row, *unit[::-1], *place[::-1]))               # the last key counts first
    restore = np.lexsort(unit[::-1, order[:: merge**2]])
    edges = 1 + np.flatnonzero(np.diff(place[:, order]).any(0))
    arrays = order, np.stack([row, column], axis=1)[order], restore
    for array in arrays:
        array.flags.writeable = False  # every call shares them
    images = tuple(accumulate((rows * columns for rows, columns in grids), initial=0))
    merged = tuple(bound // merge**2 for bound in images)
    return RowLayout(*arrays, images, (0, *edges.tolist(), len(order)), merged)


RowEmbedCache = cache_type("RowEmbed", "tubelets order proj bounds is_batch")


class RowEmbed(Module):
    """Images into one row of tokens (1, N, D) in the order of a `RowLayout`, or into a row for each of a batch.

    A list of images (C, H, W) of any sizes, or an array of such objects, makes one row, and an array (B, C, H, W) the
    rows (B, N, D). A patch is cut through `tubelet_frames` equal frames and projected by a weight (D, C, S, P, P),
    without a bias.
    """

    image_part = "proj"

    def __init__(self, config):
        self.config = config
        self.tubelet = config.tubelet_frames, config.patch_size, config.patch_size
        self.proj = PatchProjection((config.embed_dim, config.in_chans, *self.tubelet), bias=False)

    def forward(self, images, ctx=None):
        row, found = self.config.row_of(sizes_of(images)), []
        for batch in as_batches(images):
            batch = as_input(batch, image_shape(self.config), self.storage.compute_dtype, any_size=True)
            B, C, H, W = batch.shape
            videos = array_module(batch).broadcast_to(batch[:, :, None], (B, C, self.tubelet[0], H, W))
            found.append(F.tubelets(videos, self.tubelet))                     # (B, n, C·S·P·P)
        patches, caches = zip(*found)
        patches = array_module(patches[0]).concatenate(patches, axis=1)        # (B, N, C·S·P·P)
        patches, c_order = F.take_tokens(patches, np.broadcast_to(row.order, (len(patches), len(row.order))))
        tokens, c_proj = self.proj(patches, ctx)                               # (B, N, D)
        return tokens, RowEmbedCache(caches, c_order, c_proj, row.images, is_batch(images))

    def backward(self, dtokens, cache):
        """The gradient of the images: an array (B, C, H, W) where these were one, else a list."""
        dpatches = self.proj.backward(dtokens, cache.proj)
        if dpatches is None:
            return None
        dpatches = F.take_tokens_backward(dpatches, cache.order)
        parts = [dpatches[:, start:stop] for start, stop in pairwise(cache.bounds)]
        dimages = [F.tubelets_backward(*part).sum(2) for part in zip(parts, cache.tubelets, strict=True)]
        return dimages[0] if cache.is_batch else [dimage[0] for dimage in dimages]


class RowAttention(Attention):
    """Attention in each image of a row, or in each window of its images, with rotary positions by halves."""

    def __init__(self, config, full):
        super().__init__(config.embed_dim, config.num_heads)
        self.config, self.full = config, full

    def forward(self, x, ctx=None):
        row = row_in(ctx, self.config)
        qkv, c_qkv = self.qkv(x, ctx)                                          # (B, N, 3D)
        (q, k, v), c_split = F.split_heads(qkv, self.num_heads)                # each (B, H, N, d)
        q, c_rope = F.rope_halves(q, row.positions)
        k, _ = F.rope_halves(k, row.positions)
        heads, c_heads = F.packed_attention(q, k, v, row.images if self.full else row.windows)
        heads, c_merge = F.merge_heads(heads)                                  # (B, N, D)
        y, c_proj = self.proj(heads, ctx)
        y, c_drop = self.proj_drop(y, ctx)
        return y, SelfAttentionCache(c_qkv, c_split, c_rope, c_heads, c_merge, c_proj, c_drop)


class RowBlock(Block):
    """x′ = x + Attention(RMSNorm(x)), y = x′ + MLP(RMSNorm(x′)), with attention in windows or in whole images."""

    def __init__(self, config, full):
        super().__init__(config.embed_dim, config.num_heads, config.mlp_hidden)
        self.norm1 = RMSNorm(config.embed_dim, config.norm_eps)
        self.attn = RowAttention(config, full)
        self.norm2 = RMSNorm(config.embed_dim, config.norm_eps)
        self.mlp = GatedMlp(config.embed_dim, config.mlp_hidden)


MergerCache = cache_type("Merger", "ln_q shape mlp restore")


class Merger(Module):
    """Tokens (B, N, D) into merged ones (B, M, out_dim): those of each unit side by side, through an MLP, and back from
    the windows' order to that of the images, row by row."""

    def __init__(self, config):
        wide = config.merge_size**2 * config.embed_dim
        self.config, self.wide = config, wide
        self.ln_q = RMSNorm(config.embed_dim, config.norm_eps)
        self.mlp = Chain(Linear(wide, wide), Operation(F.gelu), Linear(wide, config.out_dim))

    def forward(self, x, ctx=None):
        restore = row_in(ctx, self.config).restore
        units, c_norm = self.ln_q(x, ctx)
        merged, c_mlp = self.mlp(units.reshape(len(x), -1, self.wide), ctx)    # (B, M, out_dim)
        merged, c_restore = F.take_tokens(merged, np.broadcast_to(restore, (len(x), len(restore))))
        return merged, MergerCache(c_norm, x.shape, c_mlp, c_restore)

    def backward(self, dy, cache):
        dunits = self.mlp.backward(F.take_tokens_backward(dy, cache.restore), cache.mlp)
        return self.ln_q.backward(dunits.reshape(cache.shape), cache.ln_q)


ImagePoolCache = cache_type("ImagePool", "means")


class ImagePool(Module):
    """The mean of each image's merged tokens: (B, M, out_dim) into (B, out_dim), or into one for each of a row."""

    def __init__(self, config):
        self.config = config

    def forward(self, x, ctx=None):
        images = [x[:, start:stop] for start, stop in pairwise(row_in(ctx, self.config).merged)]
        means, caches = zip(*(F.pool_mean(image, 0) for image in images))
        return array_module(x).concatenate(means), ImagePoolCache(caches)

    def backward(self, dy, cache):
        dmeans = dy.reshape(len(cache.means), -1, dy.shape[1])
        parts = [F.pool_mean_backward(*pair) for pair in zip(dmeans, cache.means, strict=True)]
        return array_module(dy).concatenate(parts, axis=1)


@register("qwen_vision", QwenVisionConfig)
class QwenVision(Architecture):
    """A ViT that reads images at their own size, several of them packed into one row in which each sees only itself.

        model(images)      logits, or without classes the means of merged tokens, a row for each image; images are an
                           array (B, C, H, W), or a list of arrays (C, H, W) whose sides are multiples of config.unit
        model.encode(images)   the merged tokens of each image, a list of arrays (M, out_dim), row by row

    Its parts: `patch_embed`, the blocks `blocks.0`, …, `merger`, `pool`, `head`. Between them are rows of tokens in the
    order of a `RowLayout`. Dropping random patches or residual branches is not provided for.
    """

    def assemble(self, config):
        self.patch_embed = RowEmbed(config)
        self.blocks = [RowBlock(config, number in config.full_attention) for number in range(config.depth)]
        self.merger = Merger(config)
        self.pool = ImagePool(config)
        self.head = linear_head(config.out_dim, config.num_classes)

    at_img_size = ConvNet.at_img_size  # all weights stay

    def rows(self, images):
        """Slices of images of several sizes, in their order, each a row that ends before the image that would make it
        longer than row_tokens. Dehghani et al. 2023, "Patch n' Pack: NaViT", section 2.1."""
        start, used = 0, 0
        for number, size in enumerate(sizes_of(images)):
            count = prod(size) // self.config.patch_size**2
            if number and used + count > (self.config.row_tokens or inf):
                yield slice(start, number)
                start, used = number, 0
            used += count
        yield slice(start, len(images))

    @property
    def depth(self):
        return self.config.depth

    def context_of(self, images, ctx):
        return replace(ctx or Context(), patches=self.config.row_of(sizes_of(images)))

    def encode(self, images, ctx=None):
        """The merged tokens (M, out_dim) of each image, a list; no cache is kept."""
        ctx = replace(ctx or Context(), keep_caches=False)
        tokens, _ = self.forward_parts(images, self.parts()[:-2], ctx)
        bounds = self.context_of(images, ctx).patches.merged
        return [row[start:stop] for row in tokens for start, stop in pairwise(bounds)]


def is_batch(images):
    """Whether these are an array of images of one size, and not a list of images or an array of objects."""
    return hasattr(images, "dtype") and images.dtype.kind != "O"


def as_batches(images):
    """Images as batches (B, C, H, W) of one size each: an array as it is, of several sizes each by itself."""
    axes, found = (4, [images]) if is_batch(images) else (3, images)
    if not len(found) or not all(getattr(image, "ndim", 0) == axes for image in found):
        got = [getattr(image, "shape", type(image).__name__) for image in found]
        raise ValueError(f"expected images (B, C, H, W), or a list of at least one array (C, H, W), got {got}")
    return found if axes == 4 else [image[None] for image in found]


def sizes_of(images):
    """((height, width), …) of the images in a row: of each of a list, and of an array the one that all have."""
    return tuple(batch.shape[2:] for batch in as_batches(images))


def row_in(ctx, config):
    """The `RowLayout` that a context says, or that of an image of the configuration's own size."""
    return (ctx and ctx.patches) or config.row_of((as_pair(config.img_size),))


variant("qwen2_5_vl_vision_small", "qwen_vision")
for size, out_dim in (("", 2048), ("_7b", 3584)):  # of the language models with 3 and with 7 billion parameters
    variant(
        f"qwen2_5_vl_vision{size}",
        "qwen_vision",
        img_size=224,
        patch_size=14,
        tubelet_frames=2,
        num_classes=0,
        embed_dim=1280,
        depth=32,
        num_heads=16,
        mlp_hidden=3420,
        window_size=112,
        full_attention=(7, 15, 23, 31),
        out_dim=out_dim,
    )
