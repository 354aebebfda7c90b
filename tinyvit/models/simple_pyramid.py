"""ViTDet's pyramid: maps of four sizes out of a plain backbone's last one, and a light head that reads them all.

Li et al. 2022, "Exploring plain vision transformer backbones for object detection", section 3.
"""

from tinyvit import functional as F
from tinyvit.models.convnet import MapNorm
from tinyvit.models.upsampling import MapLinear
from tinyvit.nn import init
from tinyvit.nn.chain import Chain, Operation
from tinyvit.nn.conv import Conv2d, ConvTranspose2d
from tinyvit.nn.module import Module
from tinyvit.nn.tree import cache_type

PyramidCache = cache_type("Pyramid", "simfp_2 simfp_3 simfp_4 simfp_5 sizes act head resize")


def level(in_chans, width, *before):
    """The layers of one size: those that change it, then convolutions of 1×1 and 3×3 with a norm each."""
    return Chain(
        *before,
        Conv2d(in_chans, width, 1),
        MapNorm(width),
        Conv2d(width, width, 3),
        MapNorm(width),
    )


class SimplePyramid(Module):
    """Feature maps (B, D, H/P, W/P) into logits (B, K, H, W), by maps four times, twice, once and half as large.

    All four are interpolated to the largest size and added up; GELU and a linear layer follow, and the result gets the
    image's size. Derived in notebooks/22.
    """

    def __init__(self, dim, num_classes, stride, config):
        width, half, quarter = config.decoder_dim, dim // 2, dim // 4
        self.stride = stride
        self.simfp_2 = level(
            quarter,
            width,
            ConvTranspose2d(dim, half, 2),
            MapNorm(half),
            Operation(F.gelu),
            ConvTranspose2d(half, quarter, 2),
        )
        self.simfp_3 = level(half, width, ConvTranspose2d(dim, half, 2))
        self.simfp_4 = level(dim, width)
        self.simfp_5 = level(dim, width, Operation(F.max_pool2d, 2))
        self.head = MapLinear(width, num_classes, weight_init=init.zeros)

    @property
    def levels(self):
        return self.simfp_2, self.simfp_3, self.simfp_4, self.simfp_5

    def forward(self, maps, ctx=None):
        rows, columns = maps.shape[2:]
        found = [level(maps, ctx) for level in self.levels]
        size = found[0][0].shape[2:]
        resized = [F.resize_bilinear(x, size) for x, _ in found]
        x, c_act = F.gelu(sum(x for x, _ in resized))                          # (B, D', 4H/P, 4W/P)
        x, c_head = self.head(x, ctx)
        logits, c_resize = F.resize_bilinear(x, (rows * self.stride[0], columns * self.stride[1]))
        sizes = tuple(cache for _, cache in resized)
        return logits, PyramidCache(*(cache for _, cache in found), sizes, c_act, c_head, c_resize)

    def backward(self, dlogits, cache):
        dx = F.resize_bilinear_backward(dlogits, cache.resize)
        dx = self.head.backward(dx, cache.head)
        dx = F.gelu_backward(dx, cache.act)
        dmaps = [F.resize_bilinear_backward(dx, size) for size in cache.sizes]
        return sum(level.backward(*pair) for level, *pair in zip(self.levels, dmaps, cache))
