"""The common part of convolutional networks: they read images of any size, and their blocks follow a stem."""

from dataclasses import replace

from tinyvit.models.architecture import Architecture
from tinyvit.nn.module import Module
from tinyvit.nn.relative_attention import RelativeAttention, resized_table
from tinyvit.nn.stack import stack, stack_backward


class Trunk(Module):
    """A stem and blocks, each of which reads the feature maps (B, C, H, W) of the one before.

    A network's own parts, and the stem of a hybrid. A subclass has `stem` and `stages`, or names others in `parts()`.
    """

    def parts(self):
        """[(name, module), …]: `stem` and the blocks `stages.0.blocks.0`, …"""
        stages = enumerate(self.stages)
        return [("stem", self.stem), *((f"stages.{i}.{name}", b) for i, s in stages for name, b in s.children())]

    def forward(self, images, ctx=None):
        return stack([part for _, part in self.parts()], images, ctx)

    def backward(self, dx, caches):
        return stack_backward([part for _, part in self.parts()], dx, caches)


class Stage(Module):
    """The blocks that work at one size; only gives them timm's names."""

    def __init__(self, blocks):
        self.blocks = blocks


class ConvNet(Architecture):
    """An architecture whose layers are the blocks of its `trunk`."""

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
