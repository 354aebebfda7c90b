"""The context of a forward: everything that it depends on besides its input and the parameters."""

from dataclasses import dataclass, replace
from typing import Any

from tinyvit.keys import Key


@dataclass(frozen=True)
class Context:
    """All that a forward depends on besides data and parameters. No context means inference.

    training      whether dropout and stochastic depth are active
    key           their random stream. `train_step` moves it on to the first sample of each part of a batch, and gives
                  `Key(seed)` the optimizer's step; a key that names a step, `Key(seed, 3)`, draws that one's masks
    observer      told every module's output by `observer.value(path, y)`; of gradients, `nn.watch` tells
    keep_caches   False drops every cache at once, when no backward will follow; what is left are buffer updates
    join          how a layer that normalises over the batch finds the statistics of the whole one, where this is a part
                  of it: a function of this part's value that returns those of all parts. `train_step` sets it
    recompute     True keeps no more of a block than its input, until its backward computes the rest again: a
                  third more arithmetic for the memory of one block at a time, and the same bits; see `nn.recompute`
    patches       for rotary positions, ((rows, columns), index): the grid of the images' patches, and which of them the
                  tokens are, (B, n), or None: all. A ViT sets it; a QwenVision sets the `RowLayout` of its images
    """

    training: bool = False
    key: Key | None = None
    observer: Any = None
    keep_caches: bool = True
    recompute: bool = False
    join: Any = None
    patches: Any = None

    def __post_init__(self):
        if not isinstance(self.key, Key | None):
            raise ValueError(f"key: expected a Key, such as Key(seed), got {self.key!r}")

    def key_for(self, path):
        """The random stream of the layer at `path`, or None outside training; ValueError if there should be one."""
        if self.training and self.key is None:
            raise ValueError(f"{path}: training with dropout needs a key: Context(training=True, key=Key(seed, step))")
        return self.key.at(path) if self.training else None


def as_one_of_two(ctx):
    """The context in which a batch is half of another one, whose second half is the same.

    For measurements: with it batch norm takes a single value per channel, too.
    """
    return replace(ctx, join=twice)


def twice(value):
    return [value, value]
