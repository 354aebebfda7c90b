"""ViViT with a factorised encoder: a spatial transformer for each frame index, and a temporal one.

Arnab et al. 2021, "ViViT: a video vision transformer", section 3.3, model 2. See notebooks/19.
"""

from dataclasses import dataclass
from typing import Annotated

from tinyvit import functional as F
from tinyvit.models.architecture import Architecture, as_input, image_shape, split_context
from tinyvit.models.registry import register, variant
from tinyvit.models.vit import block_options, make_positions
from tinyvit.models.vit_config import MAX_BLOCKS
from tinyvit.models.vivit import TubeletEmbed, ViViTConfig, image_state
from tinyvit.nn import init
from tinyvit.nn.block import Block
from tinyvit.nn.chain import Chain
from tinyvit.nn.head import linear_head, token_pool
from tinyvit.nn.layers import Dropout, LayerNorm
from tinyvit.nn.module import Module
from tinyvit.nn.tree import cache_type
from tinyvit.nn.variables import Parameter
from tinyvit.validation import Range


@dataclass(frozen=True)
class FactorisedViViTConfig(ViViTConfig):
    """The shape of a ViViT with a factorised encoder. Raises ValueError for a shape that can't be built."""

    temporal_depth: Annotated[int, Range(1, MAX_BLOCKS)] = 4
    """Blocks of the temporal transformer; `depth` are those of the spatial one."""


FrameEmbedCache = cache_type("FrameEmbed", "patch_embed split cls_token positions pos_drop join")


class FrameEmbed(Module):
    """Videos (B, C, T, H, W) into tokens (B, t·n, D) of t frame indices, each as an `Embed` has those of an image: its
    h·w tubelets, with a class token in front if that is what is read, and positions that are the same for all."""

    transparent, image_part = True, "patch_embed"

    def __init__(self, config):
        t, *plane = config.video_grid
        self.image_shape, self.count = image_shape(config), t
        is_token = config.global_pool == "token"
        self.cls_token = Parameter((1, 1, config.embed_dim), init.zeros, decay=False) if is_token else None
        self.positions = make_positions(config, int(is_token), (1, *plane))
        self.patch_embed = TubeletEmbed(config)
        self.pos_drop = Dropout(config.drop_rate)

    def forward(self, videos, ctx=None):
        videos = as_input(videos, self.image_shape, self.storage.compute_dtype)
        x, c_patch = self.patch_embed(videos, ctx)                             # (B, t·h·w, D)
        x, c_split = F.split_frames(x, self.count)                             # (B·t, h·w, D)
        x, c_token = F.prepend_token(x, self.cls_token.value) if self.cls_token else (x, None)
        x, c_positions = self.positions(x, ctx)
        x, c_drop = self.pos_drop(x, split_context(ctx, self.count))
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


FrameBlockCache = cache_type("FrameBlock", "split norm1 attn drop_path1 norm2 mlp drop_path2 join")


class FrameBlock(Block):
    """A block whose tokens (B, t·n, D) attend to those of their own frame index alone. Derived in notebooks/19."""

    def __init__(self, count, **options):
        super().__init__(**options)
        self.count = count

    def forward(self, x, ctx=None):
        x, c_split = F.split_frames(x, self.count)                             # (B·t, n, D)
        y, c_block = super().forward(x, split_context(ctx, self.count))
        y, c_join = F.join_frames(y, self.count)                               # (B, t·n, D)
        return y, FrameBlockCache(c_split, *c_block, c_join)

    def backward(self, dy, cache):
        dy = F.join_frames_backward(dy, cache.join)
        dx = super().backward(dy, cache)
        return F.split_frames_backward(dx, cache.split)


FramesCache = cache_type("Frames", "split norm pool join time_token positions pos_drop")


class Frames(Module):
    """The tokens (B, t·n, D) of t frame indices into one for each, read as a ViT's head would; then a class token in
    front if that is what is read, and positions in time: (B, 1+t, D) or (B, t, D). Derived in notebooks/19."""

    transparent = True

    def __init__(self, config):
        self.count = config.video_grid[0]
        is_token = config.global_pool == "token"
        self.norm = LayerNorm(config.embed_dim, config.norm_eps)
        self.pool = token_pool(config.global_pool, 0)
        self.time_token = Parameter((1, 1, config.embed_dim), init.zeros, decay=False) if is_token else None
        self.time = Chain(positions=make_positions(config, int(is_token), (self.count, 1, 1)))  # time.pos_embed
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


@register("factorised_vivit", FactorisedViViTConfig)
class FactorisedViViT(Architecture):
    """Model 2 of the paper: a spatial transformer reads each frame index by itself, as a ViT reads an image, and a
    temporal one what it makes of them. Section 3.3, "Factorised encoder".

    Attention costs t·(h·w)² + t² pairs in the place of (t·h·w)². The spatial part has the names of a ViT.
    """

    def assemble(self, config):
        if config.global_pool == "token":
            self.num_prefix_tokens, self.first_token, self.pooling = 1, "class token", "token"
        options = block_options(config, config.depth + config.temporal_depth)
        self.embed = FrameEmbed(config)
        self.blocks = [FrameBlock(config.video_grid[0], **own) for own in options[: config.depth]]
        self.frames = Frames(config)
        self.temporal_blocks = [Block(**own) for own in options[config.depth :]]
        self.temporal_norm = LayerNorm(config.embed_dim, config.norm_eps)
        self.pool = token_pool(config.global_pool, 0)
        self.head = linear_head(config.embed_dim, config.num_classes)

    @property
    def depth(self):
        return len(self.blocks) + 1 + len(self.temporal_blocks)  # between them, what the spatial transformer gives

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
    "vivit_factorised_base_patch16x2_224", "factorised_vivit", img_size=224, patch_size=16, frames=32, tubelet_frames=2,
    num_classes=400, embed_dim=768, depth=12, num_heads=12, mlp_ratio=4.0, activation="gelu_tanh",
)  # fmt: skip
