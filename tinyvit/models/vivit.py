"""ViViT: a ViT for videos, whose tokens are tubelets: patches through several frames.

Arnab et al. 2021, "ViViT: a video vision transformer". See notebooks/19.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from tinyvit import functional as F
from tinyvit.backend import to_numpy
from tinyvit.functional.patches import as_pair
from tinyvit.functional.tubelets import tubelet_grid
from tinyvit.models.architecture import Architecture, as_input, image_shape
from tinyvit.models.registry import register, variant
from tinyvit.models.vit import Embed, EmbedCache, ViT
from tinyvit.models.vit_config import DEEPEST, ViTConfig
from tinyvit.nn import init
from tinyvit.nn.block import Block
from tinyvit.nn.head import MeanPool, TokenPool, linear_head
from tinyvit.nn.layers import Dropout, Identity, LayerNorm
from tinyvit.nn.module import Module
from tinyvit.nn.patch_embed import PatchEmbedCache, PatchProjection
from tinyvit.nn.positions import FixedPositions, LearnedPositions
from tinyvit.nn.tree import tree
from tinyvit.nn.variables import Parameter
from tinyvit.validation import PositiveInt, Within


@dataclass(frozen=True)
class ViViTConfig(ViTConfig):
    """The shape of a ViViT: that of a ViT, and of its videos. Raises ValueError for a shape that can't be built."""

    frames: PositiveInt = 8
    """Frames of a video (T)."""
    tubelet_frames: PositiveInt = 2
    """Frames that a tubelet goes through (S); they must divide the video's."""
    positions: Literal["learned", "sincos_3d", "none"] = "learned"
    """The position encoding, by frame, row and column."""

    def __post_init__(self):
        super().__post_init__()
        if self.dynamic_img_size or self.head_hidden is not None:
            raise ValueError(
                "a ViViT reads videos of one size and has a linear head: dynamic_img_size must be False and "
                f"head_hidden None, got {self.dynamic_img_size} and {self.head_hidden}"
            )
        tubelet_grid((self.frames, *as_pair(self.img_size)), self.tubelet)

    @property
    def tubelet(self):
        """(frames, height, width) of a tubelet."""
        return self.tubelet_frames, *as_pair(self.patch_size)

    @property
    def video_grid(self):
        """Tubelets after, below and beside each other: (t, rows, columns)."""
        return self.frames // self.tubelet_frames, *self.grid


class TubeletEmbed(Module):
    """Cuts videos (B, C, T, H, W) into tubelets and projects each to a token: (B, t·h·w, D).

    This is a 3-D convolution whose stride equals its kernel size, with a weight of that shape, (D, C, S, P, Q). Section
    3.2, "Tubelet embedding". Derived in notebooks/19.
    """

    def __init__(self, config):
        self.tubelet = config.tubelet
        self.proj = PatchProjection((config.embed_dim, config.in_chans, *self.tubelet))

    def forward(self, videos, ctx=None):
        tubelets, c_tubelets = F.tubelets(videos, self.tubelet)           # (B, t·h·w, C·S·P·Q)
        tokens, c_proj = self.proj(tubelets, ctx)                         # (B, t·h·w, D)
        return tokens, PatchEmbedCache(c_tubelets, c_proj)

    def backward(self, dtokens, cache):
        dtubelets = self.proj.backward(dtokens, cache.proj)
        return F.tubelets_backward(dtubelets, cache.patches)


class VideoEmbed(Embed):
    """Videos (B, C, T, H, W) into tokens (B, 1+t·h·w, D): tubelets, class token in front, positions."""

    def __init__(self, config):
        self.image_shape, self.any_size = image_shape(config), False
        self.cls_token = Parameter((1, 1, config.embed_dim), init.zeros, decay=False)
        self.positions = positions_of(config, config.video_grid, ViT.num_prefix_tokens)
        self.patch_embed = TubeletEmbed(config)
        self.pos_drop = Dropout(config.drop_rate)

    def forward(self, videos, ctx=None):
        videos = as_input(videos, self.image_shape, self.storage.compute_dtype)
        tokens, c_patch = self.patch_embed(videos, ctx)                        # (B, t·h·w, D)
        tokens, c_token = F.prepend_token(tokens, self.cls_token.value)        # (B, 1+t·h·w, D)
        tokens, c_positions = self.positions(tokens, ctx)
        tokens, c_drop = self.pos_drop(tokens, ctx)
        return tokens, EmbedCache(c_patch, c_token, c_positions, c_drop)


def positions_of(config, grid, prefix):
    """The module that adds positions of the configured kind to `prefix` tokens and those of a grid (t, h, w)."""
    t, rows, columns = grid
    if config.positions == "none":
        return Identity()
    if config.positions == "learned":  # in the order of the tokens: the rows of the first frames come first
        return LearnedPositions((t * rows, columns), config.embed_dim, prefix=prefix)
    return FixedPositions((t * rows, columns), F.sincos_3d(grid, config.embed_dim, prefix), prefix=prefix)


@register("vivit", ViViTConfig)
class ViViT(ViT):
    """Model 1 of the paper: every tubelet attends to all others, of all frames. Section 3.3, "Spatio-temporal
    attention".

    It is a ViT on other tokens: embed, encode, pool and head as there, with videos (B, C, T, H, W) in the place of
    images.
    """

    embedding = VideoEmbed
    grid = None  # of (rows, columns); its tokens have three axes, config.video_grid
    at_img_size = Architecture.at_img_size

    def grid_of(self, images):
        return None

    def state_from(self, source, how="central"):
        """The weights of a ViT for images of this size, inflated, and for all else this model's own. Section 3.4.

        The filters become those of tubelets by `inflate_filters`, and each patch's position is that of its tubelets in
        all frames; all else is as it is. Raises ValueError for a ViT of another shape.
        """
        t, state = self.config.video_grid[0], image_state(self, source, how)
        if "pos_embed" in state:
            positions = state["pos_embed"]                                     # (1, 1+h·w, D)
            state["pos_embed"] = np.concatenate([positions[:, :1], np.tile(positions[:, 1:], (1, t, 1))], axis=1)
        return self.state_dict() | state


def inflate_filters(weight, frames, how="central"):
    """The filters of images (D, C, P, Q) as filters of tubelets (D, C, S, P, Q), S = `frames`.

    central   zero but for the frame in the middle, number S // 2, which has the image's filter: eq. 9
    average   the image's filter divided by S, in every frame: eq. 8

    Of a still clip either gives what the image's filter gives of its frame.
    """
    if how == "average":
        return np.repeat(weight[:, :, None] / frames, frames, axis=2)
    inflated = np.zeros((*weight.shape[:2], frames, *weight.shape[2:]), weight.dtype)
    inflated[:, :, frames // 2] = weight
    return inflated


SAME = (
    "img_size", "patch_size", "in_chans", "embed_dim", "depth", "num_heads", "mlp_ratio", "qkv_bias", "activation",
    "norm_eps",
)  # fmt: skip


def image_state(model, source, how):
    """The weights of a ViT but its head's, with filters inflated for a ViViT; ValueError for one of another shape."""
    if type(source) is not ViT:
        raise ValueError(f"a {type(model).__name__} starts from a ViT for images, not from a {type(source).__name__}")
    ours, theirs = model.config, source.config
    differing = [f"{name} {getattr(theirs, name)!r}, and not {getattr(ours, name)!r}" for name in SAME
                 if getattr(ours, name) != getattr(theirs, name)]  # fmt: skip
    if ours.positions == "learned" != theirs.positions:
        differing.append(f"positions {theirs.positions!r}, and not 'learned'")
    if differing:
        raise ValueError(f"the ViT doesn't fit the {type(model).__name__}: it has {'; '.join(differing)}")
    state = {name: to_numpy(array) for name, array in source.state_dict().items()}
    state["patch_embed.proj.weight"] = inflate_filters(state["patch_embed.proj.weight"], ours.tubelet_frames, how)
    left_out = ("head.", "pre_logits.") if ours.positions == "learned" else ("head.", "pre_logits.", "pos_embed")
    return {name: array for name, array in state.items() if not name.startswith(left_out)}


# -- model 2 ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FactorisedViViTConfig(ViViTConfig):
    """The shape of a ViViT with a factorised encoder. Raises ValueError for a shape that can't be built."""

    temporal_depth: Annotated[int, Within(1, DEEPEST)] = 4
    """Blocks of the temporal transformer; `depth` are those of the spatial one."""


def of_frames(ctx, frames):
    """The context for samples that were split into frames: frame k of sample s draws the random numbers of sample
    s · frames + k, on any number of threads."""
    if ctx is None or ctx.key is None:
        return ctx
    return replace(ctx, key=replace(ctx.key, sample=ctx.key.sample * frames))


class FrameEmbedCache(NamedTuple):
    patch_embed: Any
    split: Any
    cls_token: Any
    positions: Any
    pos_drop: Any
    join: Any

    __repr__ = tree


class FrameEmbed(Module):
    """Videos (B, C, T, H, W) into tokens (B, t·n, D) of t frame indices, each as an `Embed` has those of an image: its
    h·w tubelets, with a class token in front if that is what is read, and positions that are the same for all."""

    transparent = True

    def __init__(self, config):
        t, *plane = config.video_grid
        self.image_shape, self.count = image_shape(config), t
        is_token = config.global_pool == "token"
        self.cls_token = Parameter((1, 1, config.embed_dim), init.zeros, decay=False) if is_token else None
        self.positions = positions_of(config, (1, *plane), int(is_token))
        self.patch_embed = TubeletEmbed(config)
        self.pos_drop = Dropout(config.drop_rate)

    def forward(self, videos, ctx=None):
        videos = as_input(videos, self.image_shape, self.storage.compute_dtype)
        x, c_patch = self.patch_embed(videos, ctx)                             # (B, t·h·w, D)
        x, c_split = F.split_frames(x, self.count)                             # (B·t, h·w, D)
        x, c_token = F.prepend_token(x, self.cls_token.value) if self.cls_token else (x, None)
        x, c_positions = self.positions(x, ctx)
        x, c_drop = self.pos_drop(x, of_frames(ctx, self.count))
        x, c_join = F.join_frames(x, self.count)                               # (B, t·n, D)
        return x, FrameEmbedCache(c_patch, c_split, c_token, c_positions, c_drop, c_join)

    def backward(self, dx, cache):
        dx = F.join_frames_backward(dx, cache.join)
        dx = self.pos_drop.backward(dx, cache.pos_drop)
        dx = self.positions.backward(dx, cache.positions)
        if self.cls_token:
            with self.gradients() as into:
                dx, _ = F.prepend_token_backward(dx, cache.cls_token, into=into)
        dx = F.split_frames_backward(dx, cache.split)
        return self.patch_embed.backward(dx, cache.patch_embed)


class FrameBlockCache(NamedTuple):
    split: Any
    norm1: Any
    attn: Any
    drop_path1: Any
    norm2: Any
    mlp: Any
    drop_path2: Any
    join: Any

    __repr__ = tree


class FrameBlock(Block):
    """A block whose tokens (B, t·n, D) attend to those of their own frame index alone. Derived in notebooks/19."""

    def __init__(self, count, *shape, **options):
        super().__init__(*shape, **options)
        self.count = count

    def forward(self, x, ctx=None):
        x, c_split = F.split_frames(x, self.count)                             # (B·t, n, D)
        y, c_block = super().forward(x, of_frames(ctx, self.count))
        y, c_join = F.join_frames(y, self.count)                               # (B, t·n, D)
        return y, FrameBlockCache(c_split, *c_block, c_join)

    def backward(self, dy, cache):
        dy = F.join_frames_backward(dy, cache.join)
        dx = super().backward(dy, cache)
        return F.split_frames_backward(dx, cache.split)


class FramesCache(NamedTuple):
    split: Any
    norm: Any
    pool: Any
    join: Any
    time_token: Any
    positions: Any
    pos_drop: Any

    __repr__ = tree


class Frames(Module):
    """The tokens (B, t·n, D) of t frame indices into one for each, read as a ViT's head would; then a class token in
    front if that is what is read, and positions in time: (B, 1+t, D) or (B, t, D). Derived in notebooks/19."""

    transparent = True

    def __init__(self, config):
        self.count = config.video_grid[0]
        is_token = config.global_pool == "token"
        self.norm = LayerNorm(config.embed_dim, config.norm_eps)
        self.pool = TokenPool() if is_token else MeanPool(0)
        self.time_token = Parameter((1, 1, config.embed_dim), init.zeros, decay=False) if is_token else None
        self.time = TimePositions(positions_of(config, (self.count, 1, 1), int(is_token)))
        self.pos_drop = Dropout(config.drop_rate)

    def forward(self, x, ctx=None):
        x, c_split = F.split_frames(x, self.count)                             # (B·t, n, D)
        x, c_norm = self.norm(x, ctx)
        x, c_pool = self.pool(x, ctx)                                          # (B·t, D)
        x, c_join = F.join_frames(x[:, None], self.count)                      # (B, t, D)
        x, c_token = F.prepend_token(x, self.time_token.value) if self.time_token else (x, None)
        x, c_positions = self.time(x, ctx)
        x, c_drop = self.pos_drop(x, ctx)
        return x, FramesCache(c_split, c_norm, c_pool, c_join, c_token, c_positions, c_drop)

    def backward(self, dx, cache):
        dx = self.pos_drop.backward(dx, cache.pos_drop)
        dx = self.time.backward(dx, cache.positions)
        if self.time_token:
            with self.gradients() as into:
                dx, _ = F.prepend_token_backward(dx, cache.time_token, into=into)
        dx = F.join_frames_backward(dx, cache.join)[:, 0]
        dx = self.pool.backward(dx, cache.pool)
        dx = self.norm.backward(dx, cache.norm)
        return F.split_frames_backward(dx, cache.split)


class TimePositions(Module):
    """Only names the positions in time, `time.pos_embed`."""

    def __init__(self, positions):
        self.positions = positions

    def forward(self, x, ctx=None):
        return self.positions(x, ctx)

    def backward(self, dx, cache):
        return self.positions.backward(dx, cache)


@register("factorised_vivit", FactorisedViViTConfig)
class FactorisedViViT(Architecture):
    """Model 2 of the paper: a spatial transformer reads each frame index by itself, as a ViT reads an image, and a
    temporal one what it makes of them. Section 3.3, "Factorised encoder".

    Attention costs t·(h·w)² + t² pairs in the place of (t·h·w)². The spatial part has the names of a ViT.
    """

    def __init__(self, config, seed=0, dtype="float32", device="cpu", precision=None):
        self.config = config
        depth = config.depth + config.temporal_depth
        shape = config.embed_dim, config.num_heads, config.mlp_hidden
        options = [dict(
            qkv_bias=config.qkv_bias, activation=config.activation, norm_eps=config.norm_eps, drop=config.drop_rate,
            attn_drop=config.attn_drop_rate, drop_path=config.drop_path_rate * i / max(1, depth - 1),
        ) for i in range(depth)]  # fmt: skip
        self.embed = FrameEmbed(config)
        self.blocks = [FrameBlock(config.video_grid[0], *shape, **own) for own in options[: config.depth]]
        self.frames = Frames(config)
        self.temporal_blocks = [Block(*shape, **own) for own in options[config.depth :]]
        self.temporal_norm = LayerNorm(config.embed_dim, config.norm_eps)
        self.pool = TokenPool() if config.global_pool == "token" else MeanPool(0)
        self.head = linear_head(config.embed_dim, config.num_classes)
        self.materialize(seed, dtype, device, precision)

    @property
    def num_prefix_tokens(self):
        return int(self.config.global_pool == "token")

    @property
    def first_token(self):
        return "class token" if self.num_prefix_tokens else Architecture.first_token

    @property
    def pooling(self):
        return "token" if self.num_prefix_tokens else "mean"

    @property
    def depth(self):
        return len(self.blocks) + 1 + len(self.temporal_blocks)  # between them, what the spatial transformer gives

    def parts(self):
        spatial = [(f"blocks.{i}", block) for i, block in enumerate(self.blocks)]
        temporal = [(f"temporal_blocks.{i}", block) for i, block in enumerate(self.temporal_blocks)]
        return [("embed", self.embed), *spatial, ("frames", self.frames), *temporal,
                ("temporal_norm", self.temporal_norm), ("pool", self.pool), ("head", self.head)]  # fmt: skip

    def state_from(self, source, how="central"):
        """The weights of a ViT for images of this size as those of the spatial transformer, with its filters inflated
        by `inflate_filters`, and for all else this model's own. Section 3.4. Raises ValueError for one of another
        shape."""
        state = image_state(self, source, how)
        if self.embed.cls_token is None:
            state.pop("cls_token")
            if "pos_embed" in state:
                state["pos_embed"] = state["pos_embed"][:, 1:]
        return self.state_dict() | state


variant(
    "vivit_base_patch16x2_224", "vivit", img_size=224, patch_size=16, frames=32, tubelet_frames=2, num_classes=400,
    embed_dim=768, depth=12, num_heads=12, mlp_ratio=4.0, activation="gelu_tanh",
)  # fmt: skip
variant(
    "vivit_factorised_base_patch16x2_224", "factorised_vivit", img_size=224, patch_size=16, frames=32, tubelet_frames=2,
    num_classes=400, embed_dim=768, depth=12, num_heads=12, mlp_ratio=4.0, activation="gelu_tanh",
)  # fmt: skip
