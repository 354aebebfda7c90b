"""Losses made larger, so that float16 gradients are not rounded to zero."""

from tinyvit.backend import array_module

FIRST = 2.0**16
MOST = 2.0**24    # gradients that are all zero would let it grow for ever, and infinity times zero is no number
PATIENCE = 2000   # good steps after which it is doubled


class LossScale:
    """What the loss is multiplied with before its backward, and its gradients are divided by after it.

    float16 has nothing between 0 and 6e-8, which is where many gradients lie. Scaled by a power of two they keep all of
    their digits. The scale is found on the way: it is halved whenever a gradient overflows, and that step is left out;
    after 2000 steps without one it is doubled. Micikevicius et al. 2018, "Mixed precision training", section 3.2;
    the numbers are those of PyTorch's GradScaler.

    scale   float32, and `good`, the steps since it last changed: scalars on the model's device, for which nothing waits
    """

    def __init__(self, xp):
        self.scale, self.good = xp.ones((), "float32") * FIRST, xp.zeros((), "int64")

    def unscale(self, gradients):
        """Divide a flat array of gradients, in place; exact, but for numbers too small for float32."""
        gradients *= 1 / self.scale

    def update(self, applied):
        """Take note of whether a step was taken; returns whether it was left out at a scale that can still fall.

        At scale 1, the lowest, it isn't the scale that makes a loss or a gradient infinite.
        """
        xp = array_module(applied)
        grown = self.good + 1 >= PATIENCE
        up = xp.minimum(xp.where(grown, self.scale * 2, self.scale), MOST)
        down = xp.maximum(self.scale * 0.5, 1.0)
        overflowed = ~applied & (self.scale > 1)
        self.scale = xp.where(applied, up, down)
        self.good = xp.where(applied & ~grown, self.good + 1, 0)
        return overflowed
