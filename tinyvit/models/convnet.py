"""The common part of convolutional networks: they read images of any size, and their blocks follow a stem."""

from dataclasses import dataclass, replace

from tinyvit import functional as F
from tinyvit.models.architecture import Architecture, as_input
from tinyvit.nn.chain import Chain, Operation
from tinyvit.nn.head import fc_head
from tinyvit.nn.layers import LayerNorm
from tinyvit.nn.module import Module
from tinyvit.nn.relative_attention import RelativeAttention, resized_table
from tinyvit.nn.stack import stack, stack_backward
from tinyvit.validation import Count, PositiveInt, Sides, validate


@dataclass(frozen=True)
class ConvNetConfig:
    """The images and classes of a network of feature maps. A subclass has `depths`, the blocks of each stage."""

    img_size: Sides = 32
    """Side of the images in pixels, or height and width; other sizes are read, too."""
    in_chans: PositiveInt = 3
    """Channels of the images (C)."""
    num_classes: Count = 10
    """Classes (K); with 0 there is no last layer, and the model returns the features that it would read."""

    def __post_init__(self):
        validate(self)
        if not self.depths:
            raise ValueError("depths must name the blocks of at least one stage, got none")

    @property
    def dynamic_img_size(self):
        """Images of other sizes are read, too."""
        return True


class Trunk(Module):
    """A stem and blocks, each of which reads the feature maps (B, C, H, W) of the one before.

    A network's own parts, and the stem of a hybrid. They are the sub-modules in their order, a `Stage` replaced by what
    is in it.
    """

    image_part = "stem"

    def parts(self):
        """[(name, module), …]: `stem` and the blocks `stages.0.blocks.0`, …"""
        parts = []
        for name, part in self.children():
            inside = [(f"{name}.{inner}", block) for inner, block in part.children()]
            parts += inside if isinstance(part, Stage) else [(name, part)]
        return parts

    def forward(self, images, ctx=None):
        return stack([part for _, part in self.parts()], images, ctx)

    def backward(self, dx, caches):
        return stack_backward([part for _, part in self.parts()], dx, caches)


class Stem(Chain):
    """Images (B, C, H, W) of any size into feature maps: layers in order."""

    def forward(self, images, ctx=None):
        return super().forward(as_input(images, self.image_shape, self.storage.compute_dtype, any_size=True), ctx)


class Stage(Chain):
    """The blocks that work at one size; only gives them timm's names."""


class ConvNet(Architecture):
    """An architecture whose layers are the blocks of its `trunk`, a `trunk_type`. Its other modules read them."""

    def assemble(self, config):
        self.trunk = self.trunk_type(config)
        self.trunk.transparent = True
        for name, part in self.last_parts(config).items():
            setattr(self, name, part)

    def last_parts(self, config):
        """The modules that read the last feature maps, by name: a norm, the mean over all positions, and the head."""
        norm, head = MapNorm(config.out_chans, config.norm_eps), fc_head(config.out_chans, config.num_classes)
        return {"norm": norm, "pool": Operation(F.global_avg_pool2d), "head": head}

    def parts(self):
        _, *last = self.children()
        return [*self.trunk.parts(), *last]

    @property
    def depth(self):
        return len(self.trunk.parts()) - 1

    def at_img_size(self, img_size, method="bicubic"):
        """Copy the model for images of another size.

        All weights stay as they are, but tables of relative positions where the grid or its windows have other sides:
        see `nn.relative_attention.resized_table`.
        """
        config = replace(self.config, img_size=img_size)
        model = type(self)(config, 0, self.dtype.name, self.device, self.precision)
        state = self.state_dict()
        for (_, old), (_, new) in zip(self.named_modules(), model.named_modules()):
            if isinstance(old, RelativeAttention) and old.sides != new.sides:
                name = old.relative_position_bias_table.name
                state[name] = resized_table(state[name], old.sides, new.sides)
        model.load_state_dict(state)
        return model


# Maps (B, C, H, W) go from part to part; where tokens are worked on, they are views of a grid (B, H, W, C), in which
# their numbers lie.


def as_tokens(maps):
    return maps.transpose(0, 2, 3, 1)


def as_maps(tokens):
    return tokens.transpose(0, 3, 1, 2)


class OnMaps(Module):
    """A base class in front of another one, whose modules read tokens in a grid (B, H, W, C): with it they read feature
    maps (B, C, H, W)."""

    def forward(self, maps, ctx=None):
        y, cache = super().forward(as_tokens(maps), ctx)
        return as_maps(y), cache

    def backward(self, dmaps, cache):
        return as_maps(super().backward(as_tokens(dmaps), cache))


class MapNorm(OnMaps, LayerNorm):
    """A layer norm over the channels of feature maps (B, C, H, W), at each place."""
