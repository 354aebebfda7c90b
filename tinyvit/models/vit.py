"""The Vision Transformer.

Dosovitskiy et al. 2021, "An image is worth 16×16 words: transformers for image recognition at scale".
"""

from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

from tinyvit import functional as F
from tinyvit.arrays import array_module
from tinyvit.backend import device_of
from tinyvit.functional.dropout import DropoutCache
from tinyvit.functional.interpolation import matrix_on
from tinyvit.functional.layernorm import LayerNormCache
from tinyvit.functional.patches import grid_of
from tinyvit.functional.tokens import PrependTokenCache, TakeTokensCache
from tinyvit.models.architecture import Architecture, as_input, image_shape
from tinyvit.models.registry import register, variant
from tinyvit.models.vit_config import ViTConfig
from tinyvit.nn import init
from tinyvit.nn.block import Block, BlockCache
from tinyvit.nn.context import Context
from tinyvit.nn.head import MlpHead, linear_head, token_pool
from tinyvit.nn.layers import Dropout, Identity, LayerNorm
from tinyvit.nn.module import Module
from tinyvit.nn.patch_embed import PatchEmbed, PatchEmbedCache
from tinyvit.nn.positions import FixedPositions, GridPositions, LearnedPositions
from tinyvit.nn.recompute import RecomputedCache
from tinyvit.nn.stack import stack, stack_backward
from tinyvit.nn.tree import tree
from tinyvit.nn.variables import Parameter


class EmbedCache(NamedTuple):
    patch_embed: PatchEmbedCache
    cls_token: PrependTokenCache
    positions: Any
    pos_drop: DropoutCache

    __repr__ = tree


class Embed(Module):
    """Images (B, C, H, W) into tokens (B, N+1, D): patches, class token in front, positions. Eq. 1.

    Derived in notebooks/01.
    """

    transparent, image_part = True, "patch_embed"
    num_read = 1  # tokens that a head reads: the class token

    def __init__(self, config):
        self.image_shape, self.any_size = image_shape(config), config.dynamic_img_size
        self.cls_token = Parameter((1, 1, config.embed_dim), init.zeros, decay=False)
        self.positions = make_positions(config, self.num_read)
        self.patch_embed = PatchEmbed(config.patch_size, config.in_chans, config.embed_dim)
        self.pos_drop = Dropout(config.drop_rate)

    def grid_of(self, images):
        """(rows, columns) of the patches of these images; None for those that the positions were made for."""
        return grid_of(images.shape[2:], self.patch_embed.patch_size)

    def forward(self, images, ctx=None):
        images = as_input(images, self.image_shape, self.storage.compute_dtype, self.any_size)  # patches check sides
        tokens, c_patch = self.patch_embed(images, ctx)                        # (B, N, D)
        tokens, c_token = F.prepend_token(tokens, self.cls_token.value)        # (B, N+1, D)
        tokens, c_positions = self.positions(tokens, ctx, grid=self.grid_of(images))
        tokens, c_drop = self.pos_drop(tokens, ctx)
        return tokens, EmbedCache(c_patch, c_token, c_positions, c_drop)

    def backward(self, dtokens, cache):
        dtokens = self.pos_drop.backward(dtokens, cache.pos_drop)
        dtokens = self.positions.backward(dtokens, cache.positions)
        with self.gradients() as into:
            dtokens, _ = F.prepend_token_backward(dtokens, cache.cls_token, into=into)
        return self.patch_embed.backward(dtokens, cache.patch_embed)


class EncodeCache(NamedTuple):
    blocks: tuple[BlockCache | RecomputedCache, ...]
    norm: LayerNormCache

    __repr__ = tree


class Encoder(Module):
    """Tokens (B, N+1, D) through all blocks and a last layer norm. Eqs. 2–4.

    With `Context(recompute=True)` only each block's input is kept, and the rest computed again in the backward.
    Derived in notebooks/05.
    """

    transparent = True

    def __init__(self, config, prefix):
        self.tokens = prefix + prod(config.grid) if config.positions == "rope" else None
        self.blocks = [Block(**options) for options in block_options(config, config.depth)]
        self.norm = LayerNorm(config.embed_dim, config.norm_eps)

    def forward(self, tokens, ctx=None):
        if self.tokens not in (None, tokens.shape[1]) and (ctx is None or ctx.patches is None):
            raise ValueError(f"expected {self.tokens} tokens, got {tokens.shape[1]}; rotary positions of another grid "
                             "need the context model.context_of(images, None)")  # fmt: skip
        tokens, c_blocks = stack(self.blocks, tokens, ctx)
        tokens, c_norm = self.norm(tokens, ctx)
        return tokens, EncodeCache(c_blocks, c_norm)

    def backward(self, dtokens, cache):
        return stack_backward(self.blocks, self.norm.backward(dtokens, cache.norm), cache.blocks)


def block_options(config, depth):
    """The arguments of `depth` blocks; stochastic depth grows linearly from 0 at the first."""
    options = dict(
        dim=config.embed_dim,
        num_heads=config.num_heads,
        mlp_hidden=config.mlp_hidden,
        qkv_bias=config.qkv_bias,
        activation=config.activation,
        norm_eps=config.norm_eps,
        drop=config.drop_rate,
        attn_drop=config.attn_drop_rate,
        rope_grid=config.grid if config.positions == "rope" else None,
    )
    return [options | {"drop_path": config.drop_path_rate * i / max(1, depth - 1)} for i in range(depth)]


def make_positions(config, prefix, grid=None):
    """The module that adds positions of the configured kind to `prefix` tokens and those of a grid.

    grid   by default that of the patches, (rows, columns), or of the tubelets of a video, (t, rows, columns): all rows
           of the first frames come first, as in a grid (t · rows, columns)
    """
    kind, dim, method = config.positions, config.embed_dim, config.resize_positions
    if kind in ("rope", "none"):
        return Identity()  # "rope" rotates queries and keys inside the attention
    grid = grid or getattr(config, "video_grid", config.grid)
    plane = prod(grid[:-1]), grid[-1]
    if kind in ("learned", "learned_2d"):
        return (LearnedPositions if kind == "learned" else GridPositions)(plane, dim, method, prefix)
    return FixedPositions(plane, getattr(F, kind)(grid, dim, prefix), method, prefix)


class ViTCache(NamedTuple):
    embed: EmbedCache
    encode: EncodeCache
    pool: Any
    head: Any

    __repr__ = tree

    @property
    def blocks(self):
        """The blocks' caches: `cache.blocks[3].attn.heads.probs` is (B, H, N+1, N+1)."""
        return self.encode.blocks


class PatchDropoutCache(NamedTuple):
    """The cache of a forward that saw only some of the patches."""

    embed: EmbedCache
    take: TakeTokensCache
    above: tuple[Any, ...]  # of the parts after embed


@register("vit", ViTConfig)
class ViT(Architecture):
    """The Vision Transformer, made of four parts that can be called alone, each with its backward:

        embed    images (B, C, H, W) -> tokens (B, N+1, D)
        encode   tokens -> tokens (B, N+1, D), normalised
        pool     tokens -> features (B, D)
        head     features -> logits (B, K)

    A model without classes (num_classes=0) returns the features, or with an MLP head the output of its hidden layer,
    (B, head_hidden). Derived in notebooks/05.

    dtype, device and precision are as for `Module.materialize`: "cuda" is a GPU, "bfloat16" a precision, and the device
    "meta" declares the parameters without giving them memory.
    """

    num_prefix_tokens, first_token, readers = 1, "class token", "class token has"
    embedding = Embed

    def assemble(self, config):
        self.embed = self.embedding(config)
        self.encode = Encoder(config, self.num_prefix_tokens)
        self.pool = token_pool(config.global_pool, self.num_prefix_tokens)
        self.head = linear_head(config.embed_dim, config.num_classes) if config.head_hidden is None else MlpHead(
            config.embed_dim, config.head_hidden, config.num_classes
        )

    @property
    def blocks(self):
        return self.encode.blocks

    @property
    def grid(self):
        return self.config.grid

    @property
    def pooling(self):
        return "token" if self.config.global_pool == "token" else "mean"

    @property
    def depth(self):
        return len(self.blocks)

    def grid_of(self, images):
        return self.embed.grid_of(images)

    def parts(self):
        return [("embed", self.embed), *self.encode.children(), ("pool", self.pool), ("head", self.head)]

    def caches_of_parts(self, cache):
        return cache.embed, *cache.blocks, cache.encode.norm, cache.pool, cache.head

    def context_of(self, images, ctx, index=None):
        """The context, with the grid of these images for rotary positions.

        index   (B, n) of the patches that the blocks see; None: all
        """
        if self.config.positions != "rope":
            return ctx or Context()
        images = as_input(images, self.image_shape, self.storage.compute_dtype, self.config.dynamic_img_size)
        return replace(ctx or Context(), patches=(self.grid_of(images), index))

    def forward(self, images, ctx=None):
        tokens, c_embed = self.embed(images, ctx)
        tokens, c_encode = self.encode(tokens, self.context_of(images, ctx))
        features, c_pool = self.pool(tokens, ctx)
        logits, c_head = self.head(features, ctx)
        return logits, ViTCache(c_embed, c_encode, c_pool, c_head)

    def backward(self, dlogits, cache):
        dfeatures = self.head.backward(dlogits, cache.head)
        dtokens = self.pool.backward(dfeatures, cache.pool)
        dtokens = self.encode.backward(dtokens, cache.encode)
        return self.embed.backward(dtokens, cache.embed)

    def forward_some(self, images, keep, ctx):
        """The logits from a random share `keep` of each image's patches, and the cache for `backward_some`.

        A step on half of the patches takes half of the time. Liu et al. 2022, "PatchDropout: economizing vision
        transformers using patch dropout".
        """
        tokens, c_embed = self.embed(images, ctx)                              # (B, N+1, D)
        index = some_tokens(tokens, keep, self.num_prefix_tokens, ctx.key_for("keep"))
        tokens, c_take = F.take_tokens(tokens, index)                          # (B, n+1, D)
        ctx = self.context_of(images, ctx, index[:, self.num_prefix_tokens :] - self.num_prefix_tokens)
        logits, caches = self.forward_parts(tokens, self.parts()[1:], ctx)
        return logits, PatchDropoutCache(c_embed, c_take, caches)

    def backward_some(self, dlogits, cache):
        dtokens = self.backward_parts(dlogits, self.parts()[1:], cache.above)
        return self.embed.backward(F.take_tokens_backward(dtokens, cache.take), cache.embed)

    def at_img_size(self, img_size, method="bicubic"):
        """Copy the model for images of another size, cut into patches of the same size.

        All weights stay but the positions, which are resized as a model with `dynamic_img_size` does it in its forward:

            learned, sincos_1d, sincos_2d   in two dimensions by `F.resize_positions`, the class token's kept
            learned_2d                      along each axis, which is the same
            rope, none                      there are none

        method   "bilinear", "bicubic" or "zoom"

        Raises ValueError for a size that the patches don't divide and for an unknown method.
        """
        model = type(self)(replace(self.config, img_size=img_size), 0, self.dtype.name, self.device, self.precision)
        state = self.state_dict()
        if model.grid != self.grid and "pos_embed" in state:
            positions, prefix = state["pos_embed"], self.embed.positions.prefix
            state["pos_embed"], _ = F.resize_positions(positions, self.grid, model.grid, method, prefix)
        for name, old, new in zip(("pos_embed_y", "pos_embed_x"), self.grid, model.grid):
            if old != new and name in state:
                positions = state[name]                                        # (1, old, D/2)
                matrix = matrix_on(device_of(positions), method, old, new, positions.dtype)
                state[name] = (matrix @ positions[0])[None]                    # (1, new, D/2)
        model.load_state_dict(state)
        return model


def some_tokens(tokens, keep, prefix, key):
    """Indices (B, prefix+n) of the prefix tokens and of n = keep · N patches of each sample, none of them twice."""
    xp = array_module(tokens)
    B, N = len(tokens), tokens.shape[1] - prefix
    order = key.uniform((B, N), xp).argsort(1)
    chosen = prefix + order[:, : max(1, round(keep * N))]
    first = xp.broadcast_to(xp.arange(prefix, dtype=chosen.dtype), (B, prefix))
    return xp.concatenate([first, chosen], axis=1)


def name_imagenet(name, patch_size, embed_dim, depth, num_heads):
    """Name a model of the table of Dosovitskiy et al. 2021 (Touvron et al. 2021 for Ti and S), for 224×224 images."""
    variant(
        name, "vit", img_size=224, patch_size=patch_size, num_classes=1000, embed_dim=embed_dim, depth=depth,
        num_heads=num_heads, mlp_ratio=4.0,
    )  # fmt: skip


name_imagenet("vit_tiny_patch16_224", 16, 192, 12, 3)
name_imagenet("vit_small_patch16_224", 16, 384, 12, 6)
name_imagenet("vit_base_patch16_224", 16, 768, 12, 12)
name_imagenet("vit_base_patch32_224", 32, 768, 12, 12)
name_imagenet("vit_large_patch16_224", 16, 1024, 24, 16)
name_imagenet("vit_large_patch32_224", 32, 1024, 24, 16)
name_imagenet("vit_huge_patch14_224", 14, 1280, 32, 16)
