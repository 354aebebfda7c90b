"""Loss scaling, so that float16 gradients are not rounded to zero."""

from tinyvit.arrays import array_module

INITIAL_SCALE = 2.0**16
MAX_SCALE = 2.0**24    # gradients that are all zero would let it grow for ever, and infinity times zero is NaN
GROWTH_INTERVAL_STEPS = 2000   # good steps after which it is doubled


class LossScale:
    """The factor of the loss before its backward, by which the gradients are divided afterwards.

    float16 has nothing between 0 and 6e-8, where many gradients lie; scaled by a power of two they keep all their
    digits. The scale adapts: when a gradient overflows, that step is skipped and the scale is halved; after 2000 steps
    without an overflow it is doubled. Micikevicius et al. 2018, "Mixed precision training", section 3.2; the numbers
    are those of PyTorch's GradScaler.

    scale   float32, and `good`, the steps since it last changed: scalars on the model's device; nothing waits for them
    """

    def __init__(self, xp):
        self.scale, self.good = xp.ones((), "float32"), xp.zeros((), "int64")
        self.scale *= INITIAL_SCALE

    def unscale(self, gradients):
        """Divide a flat array of gradients in place; exact, except where the result is too small for float32."""
        gradients *= 1 / self.scale

    def update(self, applied):
        """Adapt to whether a step was taken; returns whether it was skipped at a scale that can still fall.

        At 1, the lowest scale, an infinite loss or gradient isn't caused by the scale.
        """
        xp = array_module(applied)
        grown = self.good + 1 >= GROWTH_INTERVAL_STEPS
        up = xp.minimum(xp.where(grown, self.scale * 2, self.scale), MAX_SCALE)
        down = xp.maximum(self.scale * 0.5, 1.0)
        overflowed = ~applied & (self.scale > 1)
        self.scale[...] = xp.where(applied, up, down)  # in place: a CUDA graph reads it there
        self.good[...] = xp.where(applied & ~grown, self.good + 1, 0)
        return overflowed
