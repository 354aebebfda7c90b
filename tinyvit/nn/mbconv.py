"""MBConv: a widened depthwise convolution with squeeze and excitation, and the shortcut around it."""

from tinyvit import functional as F
from tinyvit.nn import init
from tinyvit.nn.chain import Chain, Operation, TransparentChain
from tinyvit.nn.conv import Conv2d
from tinyvit.nn.layers import DropPath, Linear
from tinyvit.nn.module import Module
from tinyvit.nn.norms import BatchNorm2d
from tinyvit.nn.tree import cache_type


def depthwise_init(kernel_size):
    """N(0, 2 / k²): He et al. 2015, eq. 14, for a filter that reads and gives one channel."""
    return init.normal((2 / kernel_size**2) ** 0.5)


HalvingPoolCache = cache_type("HalvingPool", "pad pool")


class HalvingPool(Module):
    """The mean of each 2×2 of feature maps (B, C, H, W); an odd side is padded by zeros, which count."""

    def forward(self, x, ctx=None):
        height, width = x.shape[2:]
        x, c_pad = F.zero_pad2d(x, (0, height % 2, 0, width % 2))
        x, c_pool = F.avg_pool2d(x, 2)
        return x, HalvingPoolCache(c_pad, c_pool)

    def backward(self, dy, cache):
        return F.zero_pad2d_backward(F.avg_pool2d_backward(dy, cache.pool), cache.pad)


class Shortcut(Chain):
    """The shortcut around a block: a mean over each 2×2 where the block halves the side, and a convolution of 1×1 where
    it changes the channels."""

    def __init__(self, in_chans, out_chans, stride):
        self.pool = HalvingPool() if stride == 2 else None
        self.expand = Conv2d(in_chans, out_chans, 1, bias=True) if in_chans != out_chans else None


SqueezeExciteCache = cache_type("SqueezeExcite", "gate scale")


class SqueezeExcite(Module):
    """y_c = x_c · σ(W₂ SiLU(W₁ mean(x) + b₁) + b₂)_c: each feature map by a factor that depends on all of them.

    Hu et al. 2018, "Squeeze-and-excitation networks", with SiLU in place of ReLU. Derived in notebooks/14.
    """

    def __init__(self, dim, hidden):
        self.gate = TransparentChain(
            pool=Operation(F.global_avg_pool2d),                               # (B, C)
            fc1=Linear(dim, hidden),
            act=Operation(F.silu),
            fc2=Linear(hidden, dim),
            sigmoid=Operation(F.sigmoid),
        )

    def forward(self, x, ctx=None):
        gate, c_gate = self.gate(x, ctx)                                       # (B, C)
        y, c_scale = F.scale_channels(x, gate)
        return y, SqueezeExciteCache(c_gate, c_scale)

    def backward(self, dy, cache):
        dx, dgate = F.scale_channels_backward(dy, cache.scale)
        return dx + self.gate.backward(dgate, cache.gate)


MBConvCache = cache_type("MBConv", "shortcut branch")


class MBConv(Module):
    """y = shortcut(x) + the branch: batch norm, a convolution of 1×1 that widens, a depthwise one of 3×3, squeeze and
    excitation, and one of 1×1 that narrows; batch norm and GELU behind the first two. `hidden` channels inside, and
    `squeezed` in the hidden layer of squeeze and excitation.

    Sandler et al. 2018, "MobileNetV2: inverted residuals and linear bottlenecks". A stride is in the depthwise one, the
    paper's "strided DConv" of table 9; its default has it in the first one (eq. 5). Derived in
    notebooks/14.
    """

    def __init__(self, in_chans, out_chans, hidden, squeezed, stride=1, drop_path=0.0):
        self.shortcut = Shortcut(in_chans, out_chans, stride)
        self.branch = TransparentChain(
            pre_norm=BatchNorm2d(in_chans),
            conv1_1x1=Conv2d(in_chans, hidden, 1),
            norm1=BatchNorm2d(hidden),
            act1=Operation(F.gelu),
            conv2_kxk=Conv2d(hidden, hidden, 3, stride, groups=hidden, weight_init=depthwise_init(3)),
            norm2=BatchNorm2d(hidden),
            act2=Operation(F.gelu),
            se=SqueezeExcite(hidden, squeezed),
            conv3_1x1=Conv2d(hidden, out_chans, 1, bias=True),
            drop_path=DropPath(drop_path),
        )

    def forward(self, x, ctx=None):
        shortcut, c_shortcut = self.shortcut(x, ctx)
        h, c_branch = self.branch(x, ctx)
        return h + shortcut, MBConvCache(c_shortcut, c_branch)

    def backward(self, dy, cache):
        return self.branch.backward(dy, cache.branch) + self.shortcut.backward(dy, cache.shortcut)
