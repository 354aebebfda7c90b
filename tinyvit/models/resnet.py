"""The residual network, with basic and bottleneck blocks.

He et al. 2016, "Deep residual learning for image recognition".
"""

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from tinyvit import functional as F
from tinyvit.models.architecture import image_shape
from tinyvit.models.convnet import ConvNet, ConvNetConfig, Stem, Trunk
from tinyvit.models.registry import register, variant
from tinyvit.nn import init
from tinyvit.nn.chain import Chain, Operation, TransparentChain
from tinyvit.nn.conv import Conv2d
from tinyvit.nn.head import linear_head
from tinyvit.nn.module import Module
from tinyvit.nn.norms import BatchNorm2d
from tinyvit.nn.tree import cache_type
from tinyvit.validation import Range, Width

Depth = Annotated[int, Range(1, 1000)]


@dataclass(frozen=True)
class ResNetConfig(ConvNetConfig):
    """The shape of a ResNet. Raises ValueError for a shape that can't be built."""

    block: Literal["basic", "bottleneck"] = "basic"
    """Two convolutions of 3×3 in a block; or one, between two of 1×1 that narrow by 4 and widen again."""
    depths: tuple[Depth, ...] = (2, 2, 2)
    """Blocks of each stage; each stage after the first halves the side and doubles the width."""
    width: Width = 32
    """Channels of the 3×3 convolutions of the first stage."""
    stem: Literal["conv3", "conv4", "conv7"] = "conv3"
    """A convolution of 3×3 that keeps the size; one of 4×4 with stride 2; or one of 7×7 with stride 2 and a max
    pooling, which divide it by 4."""

    @property
    def out_chans(self):
        """Channels of the last stage."""
        return (self.width << len(self.depths) - 1) * BLOCKS[self.block].expansion

    @property
    def stride(self):
        """How many pixels of the image a step on the last feature maps is."""
        return STEMS[self.stem].stride << len(self.depths) - 1


class StemShape(NamedTuple):
    """The convolution that reads the images, and by how much the stem divides their size."""

    kernel: int
    conv_stride: int
    stride: int


STEMS = {"conv3": StemShape(3, 1, 1), "conv4": StemShape(4, 2, 2), "conv7": StemShape(7, 2, 4)}


class ResNetStem(Stem):
    """Images (B, C, H, W) into feature maps: a convolution, batch norm, ReLU, and after one of 7×7 a max pooling."""

    transparent, image_part = True, "conv1"

    def __init__(self, config):
        self.image_shape = image_shape(config)
        kernel, conv_stride, stride = STEMS[config.stem]
        self.conv1 = Conv2d(config.in_chans, config.width, kernel, conv_stride)
        self.bn1 = BatchNorm2d(config.width)
        self.relu = Operation(F.relu)
        self.pool = Operation(F.max_pool2d, 3, 2, 1) if stride > conv_stride else None


ResidualCache = cache_type("Residual", "branch downsample relu")


class ResidualBlock(Module):
    """y = ReLU(branch(x) + shortcut(x)); the shortcut is x, or where the shape changes a convolution and batch norm.

    The branch's last norm starts with a scale of 0, so that a block does nothing at first. Goyal et al. 2017,
    "Accurate, large minibatch SGD", section 5.1.
    """

    def forward(self, x, ctx=None):
        h, c_branch = self.branch(x, ctx)
        shortcut, c_down = self.downsample(x, ctx)
        y, c_relu = F.relu(h + shortcut)
        return y, ResidualCache(c_branch, c_down, c_relu)

    def backward(self, dy, cache):
        dy = F.relu_backward(dy, cache.relu)
        return self.branch.backward(dy, cache.branch) + self.downsample.backward(dy, cache.downsample)


class BasicBlock(ResidualBlock):
    """The branch BN(conv(ReLU(BN(conv(x))))), with convolutions of 3×3. Figure 5, left."""

    expansion = 1

    def __init__(self, in_chans, width, stride=1):
        self.branch = TransparentChain(
            conv1=Conv2d(in_chans, width, 3, stride),
            bn1=BatchNorm2d(width),
            relu1=Operation(F.relu),
            conv2=Conv2d(width, width, 3),
            bn2=BatchNorm2d(width, weight_init=init.zeros),
        )
        self.downsample = downsample(in_chans, width, stride)


class Bottleneck(ResidualBlock):
    """A convolution of 1×1 to `width` channels, one of 3×3, and one of 1×1 to four times as many. Figure 5, right.

    The stride is in the convolution of 3×3, as in PyTorch's and timm's models.
    """

    expansion = 4

    def __init__(self, in_chans, width, stride=1):
        self.branch = TransparentChain(
            conv1=Conv2d(in_chans, width, 1),
            bn1=BatchNorm2d(width),
            relu1=Operation(F.relu),
            conv2=Conv2d(width, width, 3, stride),
            bn2=BatchNorm2d(width),
            relu2=Operation(F.relu),
            conv3=Conv2d(width, 4 * width, 1),
            bn3=BatchNorm2d(4 * width, weight_init=init.zeros),
        )
        self.downsample = downsample(in_chans, 4 * width, stride)


BLOCKS = {"basic": BasicBlock, "bottleneck": Bottleneck}


def downsample(in_chans, out_chans, stride):
    """The layers of a shortcut that changes the shape; none where it doesn't."""
    if stride == 1 and in_chans == out_chans:
        return Chain()
    return Chain(Conv2d(in_chans, out_chans, 1, stride), BatchNorm2d(out_chans))


class ResNetTrunk(Trunk):
    """Images (B, C, H, W) into feature maps: the stem and the blocks `layer1.0`, `layer1.1`, …, `layer2.0`, …"""

    def __init__(self, config):
        self.stem = ResNetStem(config)
        block, in_chans = BLOCKS[config.block], config.width
        for i, depth in enumerate(config.depths):
            width, blocks = config.width << i, []
            for j in range(depth):
                blocks.append(block(in_chans, width, 2 if i and not j else 1))
                in_chans = width * block.expansion
            setattr(self, f"layer{i + 1}", blocks)


@register("resnet", ResNetConfig)
class ResNet(ConvNet):
    """The residual network. Its parts: `stem`, the blocks `layer1.0`, `layer1.1`, …, `pool` and `fc`.

    Layers give feature maps (B, C, H, W); the head reads their mean over all positions.
    """

    trunk_type = ResNetTrunk

    def last_parts(self, config):
        return {"pool": Operation(F.global_avg_pool2d), "fc": linear_head(config.out_chans, config.num_classes)}


def name_imagenet(name, block, depths):
    """Name a model of table 1 of the paper, for 224×224 images."""
    variant(name, "resnet", img_size=224, num_classes=1000, block=block, depths=depths, width=64, stem="conv7")


name_imagenet("resnet18", "basic", (2, 2, 2, 2))
name_imagenet("resnet34", "basic", (3, 4, 6, 3))
name_imagenet("resnet50", "bottleneck", (3, 4, 6, 3))
name_imagenet("resnet101", "bottleneck", (3, 4, 23, 3))
name_imagenet("resnet152", "bottleneck", (3, 8, 36, 3))
# Section 4.2 of the paper, with projections where the shape changes; and a smaller one for the 8×8 digits.
variant("resnet20_32", "resnet", img_size=32, num_classes=10, depths=(3, 3, 3), width=16)
variant("resnet8_digits", "resnet", img_size=8, in_chans=1, num_classes=10, depths=(1, 1, 1), width=32)
