"""CoAtNet: stages of convolutions, then stages of attention with relative positions.

Dai et al. 2021, "CoAtNet: marrying convolution and attention for all data sizes".
"""

from dataclasses import dataclass
from math import prod
from typing import Literal

from tinyvit import functional as F
from tinyvit.functional.patches import as_pair
from tinyvit.models.architecture import as_input, image_shape
from tinyvit.models.convnet import ConvNet, ConvNetConfig, MapNorm, Stage, Trunk, as_maps, as_tokens
from tinyvit.models.registry import register, variant
from tinyvit.models.resnet import Depth
from tinyvit.nn.block import Mlp
from tinyvit.nn.chain import Chain, Operation
from tinyvit.nn.conv import Conv2d
from tinyvit.nn.layers import DropPath, Identity, LayerNorm
from tinyvit.nn.mbconv import HalvingPool, MBConv, Shortcut
from tinyvit.nn.module import Module
from tinyvit.nn.norms import BatchNorm2d
from tinyvit.nn.relative_attention import RelativeAttention
from tinyvit.nn.tree import cache_type
from tinyvit.validation import NotNegative, Positive, PositiveInt, PositiveShare, Rate, Sides, Width

Stride = Literal[1, 2]


@dataclass(frozen=True)
class CoAtNetConfig(ConvNetConfig):
    """The shape of a CoAtNet. Raises ValueError for a shape that can't be built."""

    img_size: Sides = 32
    """Side of the images in pixels, or height and width. Smaller images are read, too; larger ones are refused, as they
    have differences of positions that were never learned."""
    stem_width: Width = 64
    """Channels of the two convolutions of 3×3 that read the images."""
    stem_stride: Stride = 2
    """Stride of the first of them."""
    stages: str = "CCTT"
    """The kind of each stage: C for blocks of convolutions (MBConv), T for blocks with attention."""
    depths: tuple[Depth, ...] = (2, 3, 5, 2)
    """Blocks of each stage."""
    widths: tuple[PositiveInt, ...] = (96, 192, 384, 768)
    """Channels of each stage."""
    strides: tuple[Stride, ...] = (2, 2, 2, 2)
    """Stride of the first block of each stage."""
    head_dim: PositiveInt = 32
    """Width of an attention head; it divides the widths of the stages with attention."""
    expansion: Positive = 4.0
    """Width inside a block, of an MBConv's depthwise convolution or an MLP's hidden layer, as a multiple of its
    output's."""
    squeeze: PositiveShare = 0.25
    """Width of the hidden layer of squeeze and excitation, as a multiple of the block's output."""
    drop_path_rate: Rate = 0.0
    """Stochastic depth of the last block; it grows linearly from 0 at the first."""
    norm_eps: NotNegative = 1e-6
    """ε of the layer norms; that of the batch norms is 1e-5."""

    def __post_init__(self):
        super().__post_init__()
        count = len(self.stages)
        if set(self.stages) - set("CT"):
            raise ValueError(f"stages must be a C or a T for each stage, got {self.stages!r}")
        for name in ("depths", "widths", "strides"):
            if len(getattr(self, name)) != count:
                raise ValueError(f"{name} must have a number for each of {count} stages, got {getattr(self, name)}")
        for kind, width in zip(self.stages, self.widths):
            if kind == "T" and width % self.head_dim:
                raise ValueError(f"a stage's width {width} is not divisible by head_dim {self.head_dim}")
            if min(int(self.expansion * width), int(self.squeeze * width)) < 1:
                raise ValueError(
                    f"expansion {self.expansion} or squeeze {self.squeeze} leaves a width of {width} no hidden layer"
                )

    @property
    def out_chans(self):
        """Channels of the last stage."""
        return self.widths[-1]

    @property
    def stride(self):
        """How many pixels of the image a step on the last feature maps is."""
        return self.stem_stride * prod(self.strides)

    def grid(self, stage):
        """(rows, columns) of the feature maps of a stage; the stem's are those of stage −1."""
        sides = as_pair(self.img_size)
        for stride in (self.stem_stride, *self.strides[: stage + 1]):
            sides = tuple(-(-side // stride) for side in sides)
        return sides


class CoAtNetStem(Chain):
    """Images (B, C, H, W) into feature maps: a convolution of 3×3, batch norm, GELU, and another one."""

    image_part = "conv1"

    def __init__(self, config):
        self.image_shape = image_shape(config)
        self.conv1 = Conv2d(config.in_chans, config.stem_width, 3, config.stem_stride, bias=True)
        self.norm1 = BatchNorm2d(config.stem_width)
        self.act = Operation(F.gelu)
        self.conv2 = Conv2d(config.stem_width, config.stem_width, 3, bias=True)

    def forward(self, images, ctx=None):
        x = as_input(images, self.image_shape, self.storage.compute_dtype, any_size=True)
        (_, rows, columns), (height, width) = self.image_shape, x.shape[2:]
        if height > rows or width > columns:
            raise ValueError(f"the relative positions are for images of at most {rows}×{columns} pixels, got "
                             f"{height}×{width}")  # fmt: skip
        return super().forward(x, ctx)


# `shape` is that of the tokens that attention read, (B, n, D).
RelativeBlockCache = cache_type("RelativeBlock", "shortcut norm1 pool shape attn drop_path1 norm2 mlp drop_path2")


class RelativeBlock(Module):
    """x′ = shortcut(x) + Attention(LayerNorm(x)), y = x′ + MLP(LayerNorm(x′)), over all places of the feature maps.

    Eq. 4. With a stride of 2 the normalised maps are halved by the mean of each 2×2, as in timm's models; the paper
    takes the largest number. Derived in notebooks/14.
    """

    def __init__(self, config, in_chans, out_chans, stride, drop_path, grid):
        self.shortcut = Shortcut(in_chans, out_chans, stride)
        self.norm1 = MapNorm(in_chans, config.norm_eps)
        self.pool = HalvingPool() if stride == 2 else Identity()
        self.attn = RelativeAttention(in_chans, out_chans, out_chans // config.head_dim, grid)
        self.drop_path1 = DropPath(drop_path)
        self.norm2 = LayerNorm(out_chans, config.norm_eps)
        self.mlp = Mlp(out_chans, int(config.expansion * out_chans))
        self.drop_path2 = DropPath(drop_path)

    def forward(self, maps, ctx=None):
        shortcut, c_shortcut = self.shortcut(maps, ctx)
        a, c_norm1 = self.norm1(maps, ctx)
        a, c_pool = self.pool(a, ctx)
        grid = a.shape[2:]
        a = as_tokens(a).reshape(len(a), -1, a.shape[1])                       # (B, n, D)
        shape = a.shape
        a, c_attn = self.attn(a, ctx, grid=grid)                               # (B, n, D')
        a, c_drop1 = self.drop_path1(a, ctx)
        x = as_tokens(shortcut) + a.reshape(shape[0], *grid, -1)               # (B, H, W, D')
        m, c_norm2 = self.norm2(x, ctx)
        m, c_mlp = self.mlp(m, ctx)
        m, c_drop2 = self.drop_path2(m, ctx)
        return as_maps(x + m), RelativeBlockCache(
            c_shortcut, c_norm1, c_pool, shape, c_attn, c_drop1, c_norm2, c_mlp, c_drop2
        )

    def backward(self, dmaps, cache):
        dy = as_tokens(dmaps)                                                  # (B, H, W, D')
        dm = self.drop_path2.backward(dy, cache.drop_path2)
        dm = self.mlp.backward(dm, cache.mlp)
        dx = dy + self.norm2.backward(dm, cache.norm2)
        B, rows, columns, width = dx.shape
        da = self.drop_path1.backward(dx.reshape(B, rows * columns, width), cache.drop_path1)
        da = self.attn.backward(da, cache.attn)
        da = self.pool.backward(as_maps(da.reshape(B, rows, columns, -1)), cache.pool)
        da = self.norm1.backward(da, cache.norm1)
        return da + self.shortcut.backward(as_maps(dx), cache.shortcut)


class CoAtNetTrunk(Trunk):
    """Images into feature maps: `stem` and the blocks `stages.0.blocks.0`, …"""

    def __init__(self, config):
        self.stem = CoAtNetStem(config)
        self.stages, in_chans, before, last = [], config.stem_width, 0, max(1, sum(config.depths) - 1)
        for i, (kind, depth, width) in enumerate(zip(config.stages, config.depths, config.widths)):
            blocks = []
            for j in range(depth):
                stride, drop_path = config.strides[i] if j == 0 else 1, config.drop_path_rate * before / last
                if kind == "C":
                    hidden, squeezed = int(config.expansion * width), int(config.squeeze * width)
                    blocks.append(MBConv(in_chans, width, hidden, squeezed, stride, drop_path))
                else:
                    blocks.append(RelativeBlock(config, in_chans, width, stride, drop_path, config.grid(i)))
                in_chans, before = width, before + 1
            self.stages.append(Stage(blocks=blocks))


@register("coatnet", CoAtNetConfig)
class CoAtNet(ConvNet):
    """CoAtNet. Its parts: `stem`, the blocks `stages.0.blocks.0`, …, `norm`, `pool`, `head`.

    Layers give feature maps (B, C, H, W); the head reads their mean over all positions, normalised.
    """

    trunk_type = CoAtNetTrunk


# Table 3 of the paper, with the strides of table 9; and a smaller one for CIFAR, on grids of 16×16, 8×8 and 8×8.
variant("coatnet_0_224", "coatnet", img_size=224, num_classes=1000)
variant("coatnet_small_32", "coatnet", img_size=32, num_classes=10, stem_width=32, stages="CCT", depths=(1, 1, 2),
        widths=(48, 96, 128), strides=(1, 2, 1), head_dim=32)  # fmt: skip
