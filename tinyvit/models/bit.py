"""BiT: residual networks with group norm and standardised weights, which don't depend on the batch.

Kolesnikov et al. 2020, "Big Transfer (BiT): general visual representation learning".
"""

from dataclasses import dataclass
from typing import Literal

from tinyvit import functional as F
from tinyvit.models.architecture import image_shape
from tinyvit.models.convnet import ConvNet, ConvNetConfig, Stage, Stem, Trunk
from tinyvit.models.registry import register, variant
from tinyvit.models.resnet import Depth, ResidualBlock
from tinyvit.nn import init
from tinyvit.nn.chain import Chain, Operation, TransparentChain
from tinyvit.nn.conv import StandardizedConv2d, pad_same
from tinyvit.nn.head import fc_head
from tinyvit.nn.module import Module
from tinyvit.nn.norms import GroupNorm
from tinyvit.nn.tree import cache_type
from tinyvit.validation import NotNegative, PositiveInt, Width


@dataclass(frozen=True)
class BiTConfig(ConvNetConfig):
    """The shape of a BiT. Raises ValueError for a shape that can't be built."""

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
        super().__post_init__()
        if self.width % self.num_groups:
            raise ValueError(f"width {self.width} is not divisible by num_groups {self.num_groups}")

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


def norm(config, dim, weight_init=init.ones):
    return GroupNorm(config.num_groups, dim, config.norm_eps, weight_init)


class PadForPool(Module):
    """Zeros around feature maps (B, C, H, W) for windows of 3×3 with stride 2: one on each side, or TensorFlow's
    padding. They count: without a ReLU before them, they may be the largest numbers."""

    def __init__(self, same):
        self.same = same

    def forward(self, x, ctx=None):
        return pad_same(x, 3, 2) if self.same else F.zero_pad2d(x, (1, 1, 1, 1))

    def backward(self, dy, cache):
        return F.zero_pad2d_backward(dy, cache)


class BiTStem(Stem):
    """Images into feature maps: a convolution; norm and ReLU if they follow one; a max pooling if large."""

    image_part = "conv"

    def __init__(self, config):
        self.image_shape = image_shape(config)
        large = config.stem == "conv7"
        kernel, stride = (7, 2) if large else (3, 1)
        self.conv = conv(config, config.in_chans, config.width, kernel, stride)
        if not config.preactivation:
            self.norm = norm(config, config.width)
            self.relu = Operation(F.relu)
        if large:
            self.pad = PadForPool(config.padding == "same")
            self.pool = Operation(F.max_pool2d, 3, 2)


PreActivationCache = cache_type("PreActivation", "norm1 relu1 branch downsample")


class PreActivationBlock(Module):
    """h = ReLU(norm(x)), y = conv(ReLU(norm(conv(ReLU(norm(conv(h))))))) + shortcut, with kernels of 1, 3 and 1.

    The shortcut is x, or where the shape changes a convolution of h. The residual stream itself is never normalised.
    He et al. 2016, "Identity mappings in deep residual networks", figure 4 (e).
    """

    def __init__(self, config, in_chans, width, stride, changes):
        self.downsample = Chain(conv=conv(config, in_chans, 4 * width, 1, stride)) if changes else None
        self.norm1 = norm(config, in_chans)
        self.branch = TransparentChain(
            conv1=conv(config, in_chans, width, 1),
            norm2=norm(config, width),
            relu2=Operation(F.relu),
            conv2=conv(config, width, width, 3, stride),
            norm3=norm(config, width),
            relu3=Operation(F.relu),
            conv3=conv(config, width, 4 * width, 1),
        )

    def forward(self, x, ctx=None):
        h, c_norm1 = self.norm1(x, ctx)
        h, c_relu1 = F.relu(h)
        y, c_branch = self.branch(h, ctx)
        shortcut, c_down = (x, None) if self.downsample is None else self.downsample(h, ctx)
        return y + shortcut, PreActivationCache(c_norm1, c_relu1, c_branch, c_down)

    def backward(self, dy, cache):
        dh = self.branch.backward(dy, cache.branch)
        if self.downsample is not None:
            dh = dh + self.downsample.backward(dy, cache.downsample)
        dx = self.norm1.backward(F.relu_backward(dh, cache.relu1), cache.norm1)
        return dx + dy if self.downsample is None else dx


class PostActivationBlock(ResidualBlock):
    """The branch norm(conv(ReLU(norm(conv(ReLU(norm(conv(x)))))))), with kernels of 1, 3 and 1: the hybrid's stem."""

    def __init__(self, config, in_chans, width, stride, changes):
        layers = {"conv": conv(config, in_chans, 4 * width, 1, stride), "norm": norm(config, 4 * width)}
        self.downsample = Chain(**layers) if changes else Chain()
        self.branch = TransparentChain(
            conv1=conv(config, in_chans, width, 1),
            norm1=norm(config, width),
            relu1=Operation(F.relu),
            conv2=conv(config, width, width, 3, stride),
            norm2=norm(config, width),
            relu2=Operation(F.relu),
            conv3=conv(config, width, 4 * width, 1),
            norm3=norm(config, 4 * width, weight_init=init.zeros),
        )


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
            self.stages.append(Stage(blocks=blocks))


@register("bit", BiTConfig)
class BiT(ConvNet):
    """BiT. Its parts: `stem`, the blocks `stages.0.blocks.0`, …, `norm` with a ReLU if it needs one, `pool`, `head`.

    Layers give feature maps (B, C, H, W); the head reads their mean over all positions, normalised.
    """

    trunk_type = BiTTrunk

    def last_parts(self, config):
        last = {"pool": Operation(F.global_avg_pool2d), "head": fc_head(config.out_chans, config.num_classes)}
        if not config.preactivation:
            return last
        return {"norm": TransparentChain(norm=norm(config, config.out_chans), relu=Operation(F.relu)), **last}


def name_imagenet(name, depths, factor):
    """Name a model of section 3.1 of the paper, R50x1 and wider and deeper ones, for 224×224 images."""
    variant(name, "bit", img_size=224, num_classes=1000, depths=depths, width=64 * factor, stem="conv7")


name_imagenet("resnetv2_50x1_bit", (3, 4, 6, 3), 1)
name_imagenet("resnetv2_50x3_bit", (3, 4, 6, 3), 3)
name_imagenet("resnetv2_101x1_bit", (3, 4, 23, 3), 1)
