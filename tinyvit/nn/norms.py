"""Norms of feature maps: BatchNorm2d and GroupNorm."""

from tinyvit import functional as F
from tinyvit.nn import init
from tinyvit.nn.buffers import BufferUpdate
from tinyvit.nn.module import Module
from tinyvit.nn.tree import cache_type
from tinyvit.nn.variables import Buffer, Parameter

BatchNormCache = cache_type("BatchNorm", "norm update")


class BatchNorm2d(Module):
    """Normalises each channel of x (B, C, H, W): in training over the batch, else with running statistics.

    After a step the running mean and variance have moved by `momentum` towards those of its batch, of which the
    variance is the unbiased one, as in PyTorch. The batch is the whole one of the step, in however many parts
    `train_step` computes it. See `functional.batch_norm` and `batch_norm_running`.
    """

    mixes_samples = True

    def __init__(self, dim, eps=1e-5, momentum=0.1, weight_init=init.ones):
        self.weight = Parameter((dim,), weight_init)
        self.bias = Parameter((dim,), init.zeros)
        self.running_mean = Buffer((dim,), init.zeros)
        self.running_var = Buffer((dim,), init.ones)
        self.eps, self.momentum = eps, momentum

    def forward(self, x, ctx=None):
        weight, bias = self.weight.value, self.bias.value
        if ctx is None or not ctx.training:
            y, cache = F.batch_norm_running(
                x, weight, bias, self.running_mean.value, self.running_var.value, self.eps
            )
            return y, BatchNormCache(cache, None)
        y, cache = F.batch_norm(x, weight, bias, self.eps, ctx.join)
        return y, BatchNormCache(cache, BufferUpdate(self, {"mean": cache.mean, "variance": cache.variance}))

    def backward(self, dy, cache):
        norm_backward = F.batch_norm_running_backward if cache.update is None else F.batch_norm_backward
        with self.gradients() as into:
            dx, *_ = norm_backward(dy, cache.norm, into=into)
        return dx

    def commit(self, statistics):
        keep, new = 1 - self.momentum, self.momentum
        self.running_mean.data = keep * self.running_mean.data + new * statistics["mean"]
        self.running_var.data = keep * self.running_var.data + new * statistics["variance"]


class GroupNorm(Module):
    """Normalises groups of channels of each sample of x (B, C, H, W). See `functional.group_norm`."""

    def __init__(self, num_groups, dim, eps=1e-5, weight_init=init.ones):
        if dim % num_groups:
            raise ValueError(f"{num_groups} groups don't divide {dim} channels")
        self.weight = Parameter((dim,), weight_init)
        self.bias = Parameter((dim,), init.zeros)
        self.num_groups, self.eps = num_groups, eps

    def forward(self, x, ctx=None):
        return F.group_norm(x, self.weight.value, self.bias.value, self.num_groups, self.eps)

    def backward(self, dy, cache):
        with self.gradients() as into:
            dx, *_ = F.group_norm_backward(dy, cache, into=into)
        return dx
