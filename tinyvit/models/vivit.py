"""ViViT: a ViT for videos, whose tokens are tubelets: patches through several frames.

Arnab et al. 2021, "ViViT: a video vision transformer". See notebooks/19.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from tinyvit import functional as F
from tinyvit.backend import to_numpy
from tinyvit.functional.patches import as_pair
from tinyvit.functional.tubelets import tubelet_grid
from tinyvit.models.architecture import FREE, Architecture
from tinyvit.models.registry import register, variant
from tinyvit.models.vit import Embed, ViT
from tinyvit.models.vit_config import ViTConfig
from tinyvit.nn.patch_embed import PatchEmbed, PatchEmbedCache, PatchProjection
from tinyvit.validation import PositiveInt


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


class TubeletEmbed(PatchEmbed):
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
        return dtubelets if dtubelets is None else F.tubelets_backward(dtubelets, cache.patches)


class VideoEmbed(Embed):
    """Videos (B, C, T, H, W) into tokens (B, 1+t·h·w, D): tubelets, class token in front, positions."""

    def __init__(self, config):
        super().__init__(config)
        self.patch_embed = TubeletEmbed(config)

    def grid_of(self, videos):
        return None


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


# Fields in which a ViT must be as a ViViT that starts from its weights.
SAME = ["img_size", *(name for name in ViTConfig.__dataclass_fields__ if name not in {*FREE, "positions"})]


def image_state(model, source, how):
    """The weights of a ViT but its head's, with filters inflated for a ViViT; ValueError for one of another shape."""
    if type(source) is not ViT:
        raise ValueError(f"a {type(model).__name__} starts from a ViT for images, not from a {type(source).__name__}")
    ours, theirs = model.config, source.config
    differing = [
        f"{name} {getattr(theirs, name)!r}, and not {getattr(ours, name)!r}"
        for name in SAME
        if getattr(ours, name) != getattr(theirs, name)
    ]
    if ours.positions == "learned" != theirs.positions:
        differing.append(f"positions {theirs.positions!r}, and not 'learned'")
    if differing:
        raise ValueError(f"the ViT doesn't fit the {type(model).__name__}: it has {'; '.join(differing)}")
    state = {name: to_numpy(array) for name, array in source.state_dict().items()}
    state["patch_embed.proj.weight"] = inflate_filters(state["patch_embed.proj.weight"], ours.tubelet_frames, how)
    left_out = ("head.", "pre_logits.") if ours.positions == "learned" else ("head.", "pre_logits.", "pos_embed")
    return {name: array for name, array in state.items() if not name.startswith(left_out)}


variant(
    "vivit_base_patch16x2_224",
    "vivit",
    img_size=224,
    patch_size=16,
    frames=32,
    tubelet_frames=2,
    num_classes=400,
    embed_dim=768,
    depth=12,
    num_heads=12,
    mlp_ratio=4.0,
    activation="gelu_tanh",
)
