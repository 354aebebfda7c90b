"""Convolutions, with weights as they are or standardised."""

from tinyvit import functional as F
from tinyvit.functional.patches import as_pair
from tinyvit.nn import init
from tinyvit.nn.module import Module
from tinyvit.nn.tree import cache_type
from tinyvit.nn.variables import Parameter


class Conv2d(Module):
    """A convolution of x (B, C, H, W) with weight (out, C / groups, k, k) and bias (out,). See `functional.conv2d`.

    padding      zeros on each side; by default (k − 1) // 2, which keeps the size at stride 1 for odd k
    weight_init  by default normal with variance 2 / (out · k²). He et al. 2015, "Delving deep into rectifiers", eq. 14
    """

    def __init__(
        self, in_chans, out_chans, kernel_size, stride=1, padding=None, groups=1, bias=False, weight_init=None
    ):
        if groups < 1 or in_chans % groups or out_chans % groups:
            raise ValueError(f"groups {groups} don't divide the channels {in_chans} and {out_chans}")
        weight_init = weight_init or init.normal((2 / (out_chans * kernel_size**2)) ** 0.5)
        self.weight = Parameter((out_chans, in_chans // groups, kernel_size, kernel_size), weight_init)
        self.bias = Parameter((out_chans,), init.zeros) if bias else None
        self.stride, self.groups = stride, groups
        self.padding = (kernel_size - 1) // 2 if padding is None else padding

    @property
    def image_layer(self):
        return self

    def forward(self, x, ctx=None):
        bias = self.bias.value if self.bias else None
        return F.conv2d(x, self.weight.value, bias, self.stride, self.padding, self.groups)

    def backward(self, dy, cache):
        with self.gradients() as into:
            dx, *_ = F.conv2d_backward(dy, cache, into=into, inputs=self.weight.storage.grads.wants_input_of(self))
        return dx


class ConvTranspose2d(Module):
    """A transposed convolution of x (B, C, H, W) with weight (C, out, P, Q) and bias (out,). Its stride is the size of
    its kernel, P or (P, Q). See `functional.conv_transpose2d`.

    weight_init  by default normal with variance 2 / C, as each pixel is a sum over the channels of one place
    """

    def __init__(self, in_chans, out_chans, kernel_size, weight_init=None):
        self.stride = as_pair(kernel_size)
        weight_init = weight_init or init.normal((2 / in_chans) ** 0.5)
        self.weight = Parameter((in_chans, out_chans, *self.stride), weight_init)
        self.bias = Parameter((out_chans,), init.zeros)

    def forward(self, x, ctx=None):
        return F.conv_transpose2d(x, self.weight.value, self.bias.value, self.stride)

    def backward(self, dy, cache):
        with self.gradients() as into:
            dx, *_ = F.conv_transpose2d_backward(dy, cache, into=into)
        return dx


STANDARDIZE = {
    "variance": F.standardize_weight,
    "deviation": F.standardize_weight_original,
}


StandardizedConvCache = cache_type("StandardizedConv", "pad standardize conv")


class StandardizedConv2d(Conv2d):
    """A convolution whose filters are standardised in the forward; gradients flow through that.

    padding   zeros on each side, (k − 1) // 2 by default; or "same" for TensorFlow's padding, which is as if the image
              had a multiple of the stride as its side, and may put one more zero below and to the right
    epsilon   where ε is added: to the "variance" of a filter or to its standard "deviation". See
              `functional.standardize_weight` and `standardize_weight_original`
    """

    def __init__(
        self, in_chans, out_chans, kernel_size, stride=1, padding=None, epsilon="variance", eps=1e-6, weight_init=None
    ):
        self.same = padding == "same"
        padding = 0 if self.same else padding
        super().__init__(in_chans, out_chans, kernel_size, stride, padding, weight_init=weight_init)
        self.standardize = STANDARDIZE[epsilon]
        self.eps = eps

    def forward(self, x, ctx=None):
        x, c_pad = pad_same(x, self.weight.shape[2], self.stride) if self.same else (x, None)
        weight, c_standardize = self.standardize(self.weight.value, self.eps)
        y, c_conv = F.conv2d(x, weight, None, self.stride, self.padding, self.groups)
        return y, StandardizedConvCache(c_pad, c_standardize, c_conv)

    def backward(self, dy, cache):
        with self.gradients() as (dweight,):
            inputs, into = self.weight.storage.grads.wants_input_of(self), (False,) if dweight is False else None
            dx, dstandardized = F.conv2d_backward(dy, cache.conv, into=into, inputs=inputs)
            if dweight is not False:
                self.standardize.backward(dstandardized, cache.standardize, into=(dweight,))
        return F.zero_pad2d_backward(dx, cache.pad) if self.same and inputs else dx


def pad_same(x, kernel_size, stride):
    """The maps x (B, C, H, W) with zeros around them, so that ⌈side / stride⌉ windows fit, and the cache."""
    pads = []
    for side in x.shape[2:]:
        missing = max(0, (-(-side // stride) - 1) * stride + kernel_size - side)
        pads += [missing // 2, missing - missing // 2]
    return F.zero_pad2d(x, tuple(pads))
