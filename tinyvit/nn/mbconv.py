"""MBConv: a widened depthwise convolution with squeeze and excitation, and the shortcut around it."""

from typing import Any, NamedTuple

from tinyvit import functional as F
from tinyvit.nn import init
from tinyvit.nn.conv import Conv2d
from tinyvit.nn.layers import DropPath, Linear
from tinyvit.nn.module import Module
from tinyvit.nn.norms import BatchNorm2d
from tinyvit.nn.tree import tree


def depthwise_init(kernel_size):
    """N(0, 2 / k²): He et al. 2015, eq. 14, for a filter that reads and gives one channel."""
    return init.normal((2 / kernel_size**2) ** 0.5)


class ShortcutCache(NamedTuple):
    pool: Any
    expand: Any


class Shortcut(Module):
    """The shortcut around a block: a mean over each 2×2 where the block halves the side, and a convolution of 1×1 where
    it changes the channels."""

    def __init__(self, in_chans, out_chans, stride):
        self.stride = stride
        self.expand = Conv2d(in_chans, out_chans, 1, bias=True) if in_chans != out_chans else None

    def forward(self, x, ctx=None):
        x, c_pool = halved(x) if self.stride == 2 else (x, None)
        x, c_expand = (x, None) if self.expand is None else self.expand(x, ctx)
        return x, ShortcutCache(c_pool, c_expand)

    def backward(self, dx, cache):
        dx = dx if self.expand is None else self.expand.backward(dx, cache.expand)
        return dx if self.stride == 1 else halved_backward(dx, cache.pool)


class HalvedCache(NamedTuple):
    pad: Any
    pool: Any


def halved(x):
    """The mean of each 2×2 of feature maps (B, C, H, W); an odd side is padded by zeros, which count."""
    height, width = x.shape[2:]
    x, c_pad = F.zero_pad2d(x, (0, height % 2, 0, width % 2)) if height % 2 or width % 2 else (x, None)
    x, c_pool = F.avg_pool2d(x, 2)
    return x, HalvedCache(c_pad, c_pool)


def halved_backward(dy, cache):
    dx = F.avg_pool2d_backward(dy, cache.pool)
    return dx if cache.pad is None else F.zero_pad2d_backward(dx, cache.pad)


class SqueezeExciteCache(NamedTuple):
    pool: Any
    fc1: Any
    act: Any
    fc2: Any
    gate: Any
    scale: Any

    __repr__ = tree


class SqueezeExcite(Module):
    """y_c = x_c · σ(W₂ SiLU(W₁ mean(x) + b₁) + b₂)_c: each feature map by a factor that depends on all of them.

    Hu et al. 2018, "Squeeze-and-excitation networks", with SiLU in place of ReLU. Derived in notebooks/14.
    """

    def __init__(self, dim, hidden):
        self.fc1 = Linear(dim, hidden)
        self.fc2 = Linear(hidden, dim)

    def forward(self, x, ctx=None):
        mean, c_pool = F.global_avg_pool2d(x)                                  # (B, C)
        h, c_fc1 = self.fc1(mean, ctx)
        h, c_act = F.silu(h)
        h, c_fc2 = self.fc2(h, ctx)
        gate, c_gate = F.sigmoid(h)
        y, c_scale = F.scale_channels(x, gate)
        return y, SqueezeExciteCache(c_pool, c_fc1, c_act, c_fc2, c_gate, c_scale)

    def backward(self, dy, cache):
        dx, dgate = F.scale_channels_backward(dy, cache.scale)
        dh = F.sigmoid_backward(dgate, cache.gate)
        dh = self.fc2.backward(dh, cache.fc2)
        dh = F.silu_backward(dh, cache.act)
        dmean = self.fc1.backward(dh, cache.fc1)
        return dx + F.global_avg_pool2d_backward(dmean, cache.pool)


class MBConvCache(NamedTuple):
    shortcut: Any
    pre_norm: Any
    conv1_1x1: Any
    norm1: Any
    act1: Any
    conv2_kxk: Any
    norm2: Any
    act2: Any
    se: SqueezeExciteCache
    conv3_1x1: Any
    drop_path: Any

    __repr__ = tree


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
        self.pre_norm = BatchNorm2d(in_chans)
        self.conv1_1x1 = Conv2d(in_chans, hidden, 1)
        self.norm1 = BatchNorm2d(hidden)
        self.conv2_kxk = Conv2d(hidden, hidden, 3, stride, groups=hidden, weight_init=depthwise_init(3))
        self.norm2 = BatchNorm2d(hidden)
        self.se = SqueezeExcite(hidden, squeezed)
        self.conv3_1x1 = Conv2d(hidden, out_chans, 1, bias=True)
        self.drop_path = DropPath(drop_path)

    def forward(self, x, ctx=None):
        shortcut, c_shortcut = self.shortcut(x, ctx)
        h, c_pre = self.pre_norm(x, ctx)
        h, c_conv1 = self.conv1_1x1(h, ctx)
        h, c_norm1 = self.norm1(h, ctx)
        h, c_act1 = F.gelu(h)
        h, c_conv2 = self.conv2_kxk(h, ctx)
        h, c_norm2 = self.norm2(h, ctx)
        h, c_act2 = F.gelu(h)
        h, c_se = self.se(h, ctx)
        h, c_conv3 = self.conv3_1x1(h, ctx)
        h, c_drop = self.drop_path(h, ctx)
        return h + shortcut, MBConvCache(
            c_shortcut, c_pre, c_conv1, c_norm1, c_act1, c_conv2, c_norm2, c_act2, c_se, c_conv3, c_drop
        )

    def backward(self, dy, cache):
        dh = self.drop_path.backward(dy, cache.drop_path)
        dh = self.conv3_1x1.backward(dh, cache.conv3_1x1)
        dh = self.se.backward(dh, cache.se)
        dh = F.gelu_backward(dh, cache.act2)
        dh = self.norm2.backward(dh, cache.norm2)
        dh = self.conv2_kxk.backward(dh, cache.conv2_kxk)
        dh = F.gelu_backward(dh, cache.act1)
        dh = self.norm1.backward(dh, cache.norm1)
        dh = self.conv1_1x1.backward(dh, cache.conv1_1x1)
        dx = self.pre_norm.backward(dh, cache.pre_norm)
        return dx + self.shortcut.backward(dy, cache.shortcut)
