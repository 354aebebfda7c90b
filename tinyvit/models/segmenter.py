"""A segmenter: a backbone that gives feature maps, and a head that makes of them a class for each pixel."""

from dataclasses import dataclass, fields, replace
from importlib import import_module
from typing import Any, Literal

from tinyvit import functional as F
from tinyvit.functional.patches import as_pair, grid_of
from tinyvit.models.architecture import Architecture, as_input, differences
from tinyvit.models.convnet import as_maps, as_tokens
from tinyvit.models.registry import build, config_class, register
from tinyvit.nn.context import Context
from tinyvit.nn.layers import Identity
from tinyvit.nn.module import Module
from tinyvit.nn.tree import cache_type
from tinyvit.validation import Count, PositiveInt, Sides, Width, require, validate

HEADS = {  # by name: the file of a head, and its class
    "linear": ("upsampling", "LinearHead"),
    "pixel": ("upsampling", "PixelHead"),
    "mask": ("mask_transformer", "MaskTransformer"),
    "pyramid": ("simple_pyramid", "SimplePyramid"),
}


@dataclass(frozen=True)
class SegmenterConfig:
    """The shape of a segmenter. Raises ValueError for a shape that can't be built."""

    architecture: str = "vit"
    """The backbone's architecture: any of images whose features lie in a grid."""
    backbone: Any = None
    """The configuration of the backbone, by default its architecture's. Size and channels of its images are those that
    follow, and it has no classes."""
    img_size: Sides | None = None
    """Side of the images in pixels, or height and width; by default the backbone's."""
    in_chans: PositiveInt | None = None
    """Channels of the images (C); by default the backbone's."""
    num_classes: Count = 10
    """Classes of a pixel (K); with 0 there is no head, and the model returns the backbone's feature maps."""
    head: Literal[tuple(HEADS)] = "pixel"
    """A linear layer whose results are interpolated; one with a logit for each pixel of a patch; Segmenter's mask
    transformer; or ViTDet's pyramid of maps in four sizes."""
    decoder_dim: Width = 64
    """Width of the mask transformer, or of the pyramid's maps."""
    decoder_depth: PositiveInt = 2
    """Blocks of the mask transformer."""
    decoder_heads: PositiveInt = 4
    """Attention heads of the mask transformer; they divide decoder_dim."""

    def __post_init__(self):
        validate(self)
        cls, given = config_class(self.architecture), self.backbone
        known = {field.name for field in fields(cls)}
        if given is None or isinstance(given, dict):
            given = cls(**given or {})
        if type(given) is not cls:
            raise ValueError(f"backbone must be a {cls.__name__} for the architecture {self.architecture!r}, got a "
                             f"{type(given).__name__}")  # fmt: skip
        if "frames" in known or not all(hasattr(given, name) for name in ("out_chans", "stride")):
            raise ValueError(f"the architecture {self.architecture!r} gives no feature maps of images for a head; take "
                             "another one, such as 'vit' or 'swin'")  # fmt: skip
        changes = {"num_classes": 0, "head_hidden": None, "img_size": self.img_size, "in_chans": self.in_chans}
        changes = {name: value for name, value in changes.items() if name in known}
        for name in ("img_size", "in_chans"):
            if changes[name] is None:
                changes[name] = getattr(given, name)
                object.__setattr__(self, name, changes[name])
        object.__setattr__(self, "backbone", replace(given, **changes))
        rows, columns = grid_of(as_pair(self.img_size), self.stride)
        if self.head == "mask" and self.decoder_dim % self.decoder_heads:
            raise ValueError(f"decoder_dim {self.decoder_dim} is not divisible by decoder_heads {self.decoder_heads}")
        if self.head == "pyramid":
            dim = self.backbone.out_chans
            require(min(rows, columns) > 1, "a pyramid halves the maps; expected at least 2×2 places", (rows, columns))
            require(dim % 4 == 0, "a pyramid takes a quarter of the backbone's width; expected a multiple of 4", dim)

    @property
    def stride(self):
        """(height, width) in pixels of the image of a place of the feature maps."""
        return as_pair(self.backbone.stride)

    @property
    def dynamic_img_size(self):
        """Whether images of other sizes are read, too."""
        return self.backbone.dynamic_img_size


GridMapsCache = cache_type("GridMaps", "shape")


class GridMaps(Module):
    """Tokens (B, P+N, D), the last N of which lie in a grid, as feature maps (B, D, rows, columns).

    The context has the grid of the images, as rotary positions need it; by default it is that of the configuration.
    """

    def __init__(self, prefix, grid):
        self.prefix, self.grid = prefix, grid

    def forward(self, tokens, ctx=None):
        rows, columns = self.grid if ctx is None or ctx.patches is None else ctx.patches[0]
        grid = tokens[:, self.prefix :].reshape(len(tokens), rows, columns, -1)
        return as_maps(grid), GridMapsCache(tokens.shape)

    def backward(self, dmaps, cache):
        grid = as_tokens(dmaps)
        dtokens = F.zero_pad2d(grid.reshape(len(grid), 1, -1, grid.shape[-1]), (self.prefix, 0, 0, 0))[0]
        return dtokens.reshape(cache.shape)


@register("segmenter", SegmenterConfig)
class Segmenter(Architecture):
    """A backbone and a head: images (B, C, H, W) into logits (B, K, H, W), of each class at each pixel.

    Its parts are those of the backbone below its pooling, then `maps`, feature maps of tokens, and `head`. Parameters
    of the backbone have its own names after "backbone.".
    """

    task = "segmentation"

    def assemble(self, config):
        self.backbone = build(config.backbone, device="meta")
        self.grid, self.pooling = self.backbone.grid, self.backbone.pooling
        self.num_prefix_tokens = self.backbone.num_prefix_tokens
        self.maps = Identity() if self.grid is None else GridMaps(self.num_prefix_tokens, self.grid)
        self.head = make_head(config) if config.num_classes else Identity()

    def parts(self):
        parts = self.backbone.parts()
        count = [name for name, _ in parts].index("pool")
        return [*parts[:count], ("maps", self.maps), ("head", self.head)]

    @property
    def depth(self):
        return self.backbone.depth

    def grid_of(self, images):
        return self.backbone.grid_of(images)

    def context_of(self, images, ctx):
        images = as_input(images, self.image_shape, self.storage.compute_dtype, self.config.dynamic_img_size)
        return replace(ctx or Context(), patches=(grid_of(images.shape[2:], self.config.stride), None))

    def probabilities(self, logits):
        """The probabilities of the classes of each pixel, (B, K, H, W): what `predict` gives."""
        return as_maps(F.softmax(as_tokens(logits))[0])

    def at_img_size(self, img_size, method="bicubic"):
        """Copy the model for images of another size: its backbone's weights as that copies them, the head's as they
        are."""
        config = replace(self.config, img_size=img_size)
        model = type(self)(config, 0, self.dtype.name, self.device, self.precision)
        backbone = self.backbone.at_img_size(img_size, method)
        model.load_state_dict(self.state_dict() | as_backbone(backbone.state_dict()))
        return model

    def state_from(self, source, how=None):
        """The weights of a model like the backbone, and the head's own; ValueError for one of another shape."""
        if type(source) is not type(self.backbone):
            return super().state_from(source, how)
        if differing := differences(source.config, self.config.backbone):
            raise ValueError(f"the weights don't fit the backbone: they are for {'; '.join(differing)}")
        own = self.state_dict()
        state = as_backbone(source.state_dict())
        return own | {name: array for name, array in state.items() if name in own}


def make_head(config):
    """The head of a segmenter, imported when it is asked for."""
    file, name = HEADS[config.head]
    head = getattr(import_module(f"tinyvit.models.{file}"), name)
    return head(config.backbone.out_chans, config.num_classes, config.stride, config)


def as_backbone(state):
    """Arrays by name, as those of a segmenter's backbone."""
    return {f"backbone.{name}": array for name, array in state.items()}
