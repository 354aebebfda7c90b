"""BiT: residual networks with group norm and standardised weights, which don't depend on the batch.

Kolesnikov et al. 2020, "Big Transfer (BiT): general visual representation learning".
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from tinyvit import functional as F
from tinyvit.functional.patches import as_pair
from tinyvit.models.architecture import as_input
from tinyvit.models.convnet import ConvNet, Stage, Trunk
from tinyvit.models.registry import register, variant
from tinyvit.models.resnet import Depth
from tinyvit.nn import init
from tinyvit.nn.conv import StandardizedConv2d, pad_same
from tinyvit.nn.head import MapPool, linear_head
from tinyvit.nn.module import Module
from tinyvit.nn.norms import GroupNorm
from tinyvit.nn.tree import tree
from tinyvit.validation import Count, NotNegative, PositiveInt, Width, validate


@dataclass(frozen=True)
class BiTConfig:
    """The shape of a BiT. Raises ValueError for a shape that can't be built."""

    img_size: int | tuple[int, int] = 32
    """Side of the images in pixels, or height and width; other sizes are read, too."""
    in_chans: PositiveInt = 3
    """Channels of the images (C)."""
    num_classes: Count = 10
    """Classes (K); with 0 there is no last layer, and the model returns the features that it would read."""
    depths: tuple[Depth, ...] = (2, 2, 2)
    """Blocks of each stage; each stage after the first halves the side and doubles the width."""
    width: Width = 32
    """Channels of the 3×3 convolutions of the first stage; its blocks give four times as many."""
    stem: Literal["conv3", "conv7"] = "conv3"
    """A convolution of 3×3 that keeps the size; or one of 7×7 with stride 2 and a max pooling, which divide it by 4."""
    preactivation: bool = True
    """Whether norm and ReLU stand before each convolution; else after it, as in the stem of the hybrid."""
    num_groups: PositiveInt = 32
    """Groups of the group norms; they divide width."""
    padding: Literal["symmetric", "same"] = "symmetric"
    """Zeros around what is convolved: alike on all sides; or TensorFlow's "same" padding, as in the hybrid's stem."""
    epsilon: Literal["variance", "deviation"] = "variance"
    """Where ε is added when filters are standardised: to their variance, or to their standard deviation."""
    std_eps: NotNegative = 1e-8
    """ε of standardised filters; 1e-8 in timm's and Transformers' models, 1e-5 with "deviation" in the papers' code."""
    norm_eps: NotNegative = 1e-5
    """ε of the group norms."""

    def __post_init__(self):
        height, width = as_pair(self.img_size)
        object.__setattr__(self, "img_size", height if isinstance(self.img_size, int) else (height, width))
        validate(self)
        if not self.depths:
            raise ValueError("depths must name the blocks of at least one stage, got none")
        if self.width % self.num_groups:
            raise ValueError(f"width {self.width} is not divisible by num_groups {self.num_groups}")

    @property
    def dynamic_img_size(self):
        """Convolutions read images of any size."""
        return True

    @property
    def out_chans(self):
        """Channels of the last stage."""
        return 4 * (self.width << len(self.depths) - 1)

    @property
    def stride(self):
        """How many pixels of the image a step on the last feature maps is."""
        return (4 if self.stem == "conv7" else 1) << len(self.depths) - 1


def conv(config, in_chans, out_chans, kernel_size, stride=1):
    """A convolution of the configured padding and standardisation."""
    padding = "same" if config.padding == "same" and stride > 1 else None
    return StandardizedConv2d(in_chans, out_chans, kernel_size, stride, padding, config.epsilon, config.std_eps)


class BiTStemCache(NamedTuple):
    conv: Any
    norm: Any
    relu: Any
    pad: Any
    pool: Any

    __repr__ = tree


class BiTStem(Module):
    """Images into feature maps: a convolution; norm and ReLU if they follow one; a max pooling if large."""

    def __init__(self, config):
        self.image_shape = (config.in_chans, *as_pair(config.img_size))
        self.large, self.same = config.stem == "conv7", config.padding == "same"
        kernel, stride = (7, 2) if self.large else (3, 1)
        self.conv = conv(config, config.in_chans, config.width, kernel, stride)
        self.norm = None if config.preactivation else GroupNorm(config.num_groups, config.width, config.norm_eps)

    @property
    def image_layer(self):
        return self.conv

    def forward(self, images, ctx=None):
        x = as_input(images, self.image_shape, self.storage.compute_dtype, any_size=True)
        x, c_conv = self.conv(x, ctx)
        c_norm = c_relu = c_pad = c_pool = None
        if self.norm is not None:
            x, c_norm = self.norm(x, ctx)
            x, c_relu = F.relu(x)
        if self.large:  # the zeros count: without a ReLU before it, they may be the largest
            x, c_pad = pad_same(x, 3, 2) if self.same else F.zero_pad2d(x, (1, 1, 1, 1))
            x, c_pool = F.max_pool2d(x, 3, 2)
        return x, BiTStemCache(c_conv, c_norm, c_relu, c_pad, c_pool)

    def backward(self, dx, cache):
        if self.large:
            dx = F.max_pool2d_backward(dx, cache.pool)
            dx = F.zero_pad2d_backward(dx, cache.pad)
        if self.norm is not None:
            dx = F.relu_backward(dx, cache.relu)
            dx = self.norm.backward(dx, cache.norm)
        return self.conv.backward(dx, cache.conv)


class BiTBlockCache(NamedTuple):
    norm1: Any
    relu1: Any
    conv1: Any
    norm2: Any
    relu2: Any
    conv2: Any
    norm3: Any
    relu3: Any
    conv3: Any
    downsample: Any

    __repr__ = tree


class PreActivationBlock(Module):
    """h = ReLU(norm(x)), y = conv(ReLU(norm(conv(ReLU(norm(conv(h))))))) + shortcut, with kernels of 1, 3 and 1.

    The shortcut is x, or where the shape changes a convolution of h. The residual stream itself is never normalised.
    He et al. 2016, "Identity mappings in deep residual networks", figure 4 (e).
    """

    def __init__(self, config, in_chans, width, stride, changes):
        def norm(dim):
            return GroupNorm(config.num_groups, dim, config.norm_eps)

        self.downsample = Downsample(config, in_chans, 4 * width, stride) if changes else None
        self.norm1 = norm(in_chans)
        self.conv1 = conv(config, in_chans, width, 1)
        self.norm2 = norm(width)
        self.conv2 = conv(config, width, width, 3, stride)
        self.norm3 = norm(width)
        self.conv3 = conv(config, width, 4 * width, 1)

    def forward(self, x, ctx=None):
        h, c_norm1 = self.norm1(x, ctx)
        h, c_relu1 = F.relu(h)
        shortcut, c_down = (x, None) if self.downsample is None else self.downsample(h, ctx)
        h, c_conv1 = self.conv1(h, ctx)
        h, c_norm2 = self.norm2(h, ctx)
        h, c_relu2 = F.relu(h)
        h, c_conv2 = self.conv2(h, ctx)
        h, c_norm3 = self.norm3(h, ctx)
        h, c_relu3 = F.relu(h)
        h, c_conv3 = self.conv3(h, ctx)
        caches = c_norm1, c_relu1, c_conv1, c_norm2, c_relu2, c_conv2, c_norm3, c_relu3, c_conv3, c_down
        return h + shortcut, BiTBlockCache(*caches)

    def backward(self, dy, cache):
        dh = self.conv3.backward(dy, cache.conv3)
        dh = F.relu_backward(dh, cache.relu3)
        dh = self.norm3.backward(dh, cache.norm3)
        dh = self.conv2.backward(dh, cache.conv2)
        dh = F.relu_backward(dh, cache.relu2)
        dh = self.norm2.backward(dh, cache.norm2)
        dh = self.conv1.backward(dh, cache.conv1)
        if self.downsample is not None:
            dh = dh + self.downsample.backward(dy, cache.downsample)
        dh = F.relu_backward(dh, cache.relu1)
        dx = self.norm1.backward(dh, cache.norm1)
        return dx + dy if self.downsample is None else dx


class PostActivationCache(NamedTuple):
    conv1: Any
    norm1: Any
    relu1: Any
    conv2: Any
    norm2: Any
    relu2: Any
    conv3: Any
    norm3: Any
    downsample: Any
    relu3: Any

    __repr__ = tree


class PostActivationBlock(Module):
    """y = ReLU(norm(conv(ReLU(norm(conv(ReLU(norm(conv(x)))))))) + shortcut), with kernels of 1, 3 and 1.

    The block of the hybrid's stem. The last norm's scale starts at 0.
    """

    def __init__(self, config, in_chans, width, stride, changes):
        self.downsample = Downsample(config, in_chans, 4 * width, stride) if changes else None
        self.conv1 = conv(config, in_chans, width, 1)
        self.norm1 = GroupNorm(config.num_groups, width, config.norm_eps)
        self.conv2 = conv(config, width, width, 3, stride)
        self.norm2 = GroupNorm(config.num_groups, width, config.norm_eps)
        self.conv3 = conv(config, width, 4 * width, 1)
        self.norm3 = GroupNorm(config.num_groups, 4 * width, config.norm_eps, weight_init=init.zeros)

    def forward(self, x, ctx=None):
        shortcut, c_down = (x, None) if self.downsample is None else self.downsample(x, ctx)
        h, c_conv1 = self.conv1(x, ctx)
        h, c_norm1 = self.norm1(h, ctx)
        h, c_relu1 = F.relu(h)
        h, c_conv2 = self.conv2(h, ctx)
        h, c_norm2 = self.norm2(h, ctx)
        h, c_relu2 = F.relu(h)
        h, c_conv3 = self.conv3(h, ctx)
        h, c_norm3 = self.norm3(h, ctx)
        y, c_relu3 = F.relu(h + shortcut)
        caches = c_conv1, c_norm1, c_relu1, c_conv2, c_norm2, c_relu2, c_conv3, c_norm3, c_down, c_relu3
        return y, PostActivationCache(*caches)

    def backward(self, dy, cache):
        dy = F.relu_backward(dy, cache.relu3)
        dh = self.norm3.backward(dy, cache.norm3)
        dh = self.conv3.backward(dh, cache.conv3)
        dh = F.relu_backward(dh, cache.relu2)
        dh = self.norm2.backward(dh, cache.norm2)
        dh = self.conv2.backward(dh, cache.conv2)
        dh = F.relu_backward(dh, cache.relu1)
        dh = self.norm1.backward(dh, cache.norm1)
        dx = self.conv1.backward(dh, cache.conv1)
        return dx + (dy if self.downsample is None else self.downsample.backward(dy, cache.downsample))


class DownsampleCache(NamedTuple):
    conv: Any
    norm: Any


class Downsample(Module):
    """The shortcut where the shape changes: a convolution of 1×1, normalised if norms follow convolutions."""

    def __init__(self, config, in_chans, out_chans, stride):
        self.conv = conv(config, in_chans, out_chans, 1, stride)
        self.norm = None if config.preactivation else GroupNorm(config.num_groups, out_chans, config.norm_eps)

    def forward(self, x, ctx=None):
        x, c_conv = self.conv(x, ctx)
        x, c_norm = (x, None) if self.norm is None else self.norm(x, ctx)
        return x, DownsampleCache(c_conv, c_norm)

    def backward(self, dx, cache):
        dx = dx if self.norm is None else self.norm.backward(dx, cache.norm)
        return self.conv.backward(dx, cache.conv)


class BiTTrunk(Trunk):
    """Images into feature maps: the stem and all blocks, by timm's names `stem` and `stages.0.blocks.0`."""

    def __init__(self, config):
        self.stem = BiTStem(config)
        self.stages, in_chans = [], config.width
        for i, depth in enumerate(config.depths):
            width, blocks = config.width << i, []
            for j in range(depth):
                kind = PreActivationBlock if config.preactivation else PostActivationBlock
                blocks.append(kind(config, in_chans, width, 2 if i and not j else 1, changes=not j))
                in_chans = 4 * width
            self.stages.append(Stage(blocks))


class Head(Module):
    """Only gives the last layer timm's name, `head.fc`."""

    def __init__(self, dim, num_classes):
        self.fc = linear_head(dim, num_classes)

    def forward(self, features, ctx=None):
        return self.fc(features, ctx)

    def backward(self, dlogits, cache):
        return self.fc.backward(dlogits, cache)


class LastNormCache(NamedTuple):
    norm: Any
    relu: Any


class LastNorm(Module):
    """The norm and ReLU after the last block, which gave a residual stream."""

    transparent = True

    def __init__(self, config):
        self.norm = GroupNorm(config.num_groups, config.out_chans, config.norm_eps)

    def forward(self, x, ctx=None):
        x, c_norm = self.norm(x, ctx)
        x, c_relu = F.relu(x)
        return x, LastNormCache(c_norm, c_relu)

    def backward(self, dx, cache):
        return self.norm.backward(F.relu_backward(dx, cache.relu), cache.norm)


@register("bit", BiTConfig)
class BiT(ConvNet):
    """BiT. Its parts: `stem`, the blocks `stages.0.blocks.0`, …, `norm` with a ReLU if it needs one, `pool`, `head`.

    Layers give feature maps (B, C, H, W); the head reads their mean over all positions, normalised.
    """

    def __init__(self, config, seed=0, dtype="float32", device="cpu", precision=None):
        self.config = config
        self.trunk = BiTTrunk(config)
        self.trunk.transparent = True
        self.last = LastNorm(config) if config.preactivation else None
        self.pool = MapPool()
        self.head = Head(config.out_chans, config.num_classes)
        self.materialize(seed, dtype, device, precision)

    def parts(self):
        last = [] if self.last is None else [("norm", self.last)]
        return [*self.trunk.parts(), *last, ("pool", self.pool), ("head", self.head)]


def imagenet(name, depths, factor):
    """Name a model of section 3.1 of the paper, R50x1 and wider and deeper ones, for 224×224 images."""
    variant(name, "bit", img_size=224, num_classes=1000, depths=depths, width=64 * factor, stem="conv7")


imagenet("resnetv2_50x1_bit", (3, 4, 6, 3), 1)
imagenet("resnetv2_50x3_bit", (3, 4, 6, 3), 3)
imagenet("resnetv2_101x1_bit", (3, 4, 23, 3), 1)
