"""A factor for each channel of each sample: the last step of squeeze and excitation."""

from typing import NamedTuple

from tinyvit.arrays import Array
from tinyvit.dispatch import backward_of, operation


class ScaleChannelsCache(NamedTuple):
    x: Array       # (B, C, H, W)
    weight: Array  # (B, C)


@operation(arrays="x weight")
def scale_channels(x, weight):
    """y_bchw = x_bchw · weight_bc, for feature maps x (B, C, H, W) and a factor (B, C) for each of them.

    Hu et al. 2018, "Squeeze-and-excitation networks", eq. 4. Derived in notebooks/14.
    """
    if x.ndim != 4 or weight.shape != x.shape[:2]:
        raise ValueError(f"scale_channels: expected x (B, C, H, W) and weight (B, C), got {x.shape} and {weight.shape}")
    return x * weight[:, :, None, None], ScaleChannelsCache(x, weight)


@backward_of(scale_channels, result=lambda cache: cache.x.shape)
def scale_channels_backward(dy, cache):
    """Returns (dx, dweight): a factor was used by all pixels of its map, so its gradient is a sum over them."""
    x, weight = cache
    return dy * weight[:, :, None, None], (dy * x).reshape(*weight.shape, -1).sum(-1)
