"""The heads of a segmenter that look at each place of the feature maps by itself."""

from tinyvit import functional as F
from tinyvit.functional.patches import as_pair
from tinyvit.models.convnet import OnMaps
from tinyvit.nn import init
from tinyvit.nn.chain import Chain
from tinyvit.nn.conv import ConvTranspose2d
from tinyvit.nn.layers import Linear
from tinyvit.nn.module import Module


class MapLinear(OnMaps, Linear):
    """A linear layer at each place of feature maps (B, C, H, W): a convolution of 1×1."""


class Upsample(Module):
    """Feature maps (B, C, H, W) made `scale` times, or (vertically, horizontally), as large: see
    `functional.resize_bilinear`."""

    def __init__(self, scale):
        self.scale = as_pair(scale)

    def forward(self, maps, ctx=None):
        size = tuple(side * scale for side, scale in zip(maps.shape[2:], self.scale))
        return F.resize_bilinear(maps, size)

    def backward(self, dmaps, cache):
        return F.resize_bilinear_backward(dmaps, cache)


class LinearHead(Chain):
    """A logit for each class at each place, and bilinear interpolation between them: (B, K, H, W).

    Strudel et al. 2021, "Segmenter: transformer for semantic segmentation", section 3.2, "Linear".
    """

    def __init__(self, dim, num_classes, stride, config):
        self.head = MapLinear(dim, num_classes, weight_init=init.zeros)
        self.upsample = Upsample(stride)


class PixelHead(Chain):
    """A logit for each class and each pixel of a place, as many as P²·K, put in its place: (B, K, H, W)."""

    def __init__(self, dim, num_classes, stride, config):
        self.head = ConvTranspose2d(dim, num_classes, stride, weight_init=init.zeros)
