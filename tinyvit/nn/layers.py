"""The smallest layers: Linear, LayerNorm, Dropout, DropPath, Identity, and the sum at a residual branch's end."""

from typing import Any, NamedTuple

from tinyvit import functional as F
from tinyvit.backend import Array, Key, array_module, on_gpu
from tinyvit.nn import init
from tinyvit.nn.module import Module
from tinyvit.nn.variables import Parameter


class Unfinished(NamedTuple):
    """The output of a linear layer without its bias. A later layer adds that in its own pass, with stochastic depth and
    the residual sum if they come between: x + drop_path(product + bias).

    Only on a GPU, where a pass through memory takes as long as a product.
    """

    product: Array  # (..., D)  x Wᵀ
    linear: Module  # whose bias is missing
    rate: float = 0.0
    key: Key | None = None
    x: Array | None = None  # (..., D)  what the residual connection adds the branch to

    def finished(self):
        """The output as an array, for an observer."""
        x = array_module(self.product).zeros_like(self.product) if self.x is None else self.x
        return F.add_branch(x, self.product, self.linear.bias.value, self.rate, self.key)[0]

    def reshape(self, *shape):
        """The same tokens in another grid (..., D), of a branch without its sum."""
        return self._replace(product=self.product.reshape(shape))


class SumGradient(NamedTuple):
    """The gradients of x and branch, for a block that left its residual sum x + branch to a later layer."""

    x: Array  # (..., D)  also that of the sum itself
    branch: Array  # (..., D)


def passes_on(layer):
    """Whether a layer passes an `Unfinished` on: stochastic depth, and a dropout that drops nothing."""
    return type(layer) is DropPath or (type(layer) is Dropout and not layer.rate)


def moved(operation, x, *arguments):
    """operation(x, *arguments), which only moves tokens, so that an `Unfinished` without its sum stays one."""
    if not isinstance(x, Unfinished):
        return operation(x, *arguments)
    product, cache = operation(x.product, *arguments)
    return x._replace(product=product), cache


class FinishedCache(NamedTuple):
    """Of an operation that finished an `Unfinished`; it answers to the names in the operation's own cache."""

    own: Any
    linear: Module

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.own.norm if hasattr(self.own, "norm") else self.own, name)


class Linear(Module):
    """y = x Wᵀ + b, with weight (out, in) and bias (out,). See `functional.linear`.

    The weight is initialised Xavier-uniform and the bias with zeros, unless other initial values are given.
    """

    def __init__(self, in_features, out_features, bias=True, weight_init=None, bias_init=init.zeros):
        weight_init = weight_init or init.xavier_uniform(in_features, out_features)
        self.weight = Parameter((out_features, in_features), weight_init)
        self.bias = Parameter((out_features,), bias_init) if bias else None

    def forward(self, x, ctx=None, bias_later=False):
        """With `bias_later`, y may come as an `Unfinished`, for a caller that passes it on to what finishes it."""
        if bias_later and self.bias and on_gpu(x):
            product, cache = F.linear(x, self.weight.value)
            return Unfinished(product, self), cache
        return F.linear(x, self.weight.value, self.bias.value if self.bias else None)

    def backward(self, dy, cache):
        with self.gradients() as into:
            dx, *_ = F.linear_backward(dy, cache, into=into[: 1 + cache.has_bias])
        return dx

    def bias_gradient(self):
        """Where to add the gradient of the bias alone: `gradients`, for what has added the bias."""
        return self.gradients(self.bias)


class LayerNorm(Module):
    """Normalises each token to mean 0 and variance 1, then scales and shifts. See `functional.layernorm`."""

    def __init__(self, dim, eps=1e-6):
        self.weight = Parameter((dim,), init.ones)
        self.bias = Parameter((dim,), init.zeros)
        self.eps = eps

    def forward(self, x, ctx=None):
        """x may be an `Unfinished` sum; then `backward` gives its `SumGradient`."""
        if isinstance(x, Unfinished):
            _, y, cache = self.of_sum(x.x, x)
            return y, cache
        return F.layernorm(x, self.weight.value, self.bias.value, self.eps)

    def backward(self, dy, cache):
        if isinstance(cache, FinishedCache):
            return LayerNorm.of_sum_backward(self, None, dy, cache)  # not its watched twin: this one is watched itself
        with self.gradients() as into:
            dx, *_ = F.layernorm_backward(dy, cache, into=into)
        return dx

    def of_sum(self, x, branch, ctx=None):
        """(x + branch, this layer of that sum, cache): the residual connection and the norm in one pass."""
        own = self.weight.value, self.bias.value, self.eps
        if isinstance(branch, Unfinished):
            product, linear, rate, key, _ = branch
            (total, y), cache = F.add_branch_layernorm(x, product, linear.bias.value, *own, rate, key)
            cache = FinishedCache(cache, linear)
        else:
            (total, y), cache = F.add_layernorm(x, branch, *own)
        return total, y, self.reported(y, cache, ctx)

    def of_sum_backward(self, dtotal, dy, cache):
        """(dx, dbranch), from the gradients of x + branch, None if it goes nowhere, and of this layer's output."""
        with self.gradients() as into:
            if not isinstance(cache, FinishedCache):
                dx, dbranch, *_ = F.add_layernorm_backward((dtotal, dy), cache, into=into)
            else:
                with cache.linear.bias_gradient() as of_linear:
                    dx, dbranch, *_ = F.add_branch_layernorm_backward((dtotal, dy), cache.own, into=of_linear + into)
        return SumGradient(dx, dbranch)

    def beside(self, x, ctx=None):
        """The same as any module's, in one pass; x may be an `Unfinished` sum, which is finished."""
        return self.of_sum(x.x, x, ctx) if isinstance(x, Unfinished) else super().beside(x, ctx)

    def beside_backward(self, dpast, dy, cache):
        """The same as any module's, in one pass; of an `Unfinished` sum its `SumGradient`."""
        dsum = self.of_sum_backward(dpast, dy, cache)
        return dsum if isinstance(cache, FinishedCache) else dsum.x


def add(x, branch, later=False):
    """(x + branch, cache): the residual connection, which finishes the branch if need be.

    With `later`, an `Unfinished` branch becomes an `Unfinished` sum.
    """
    if not isinstance(branch, Unfinished):
        return x + branch, None
    if later:
        return branch._replace(x=x), None
    y, cache = F.add_branch(x, branch.product, branch.linear.bias.value, branch.rate, branch.key)
    return y, FinishedCache(cache, branch.linear)


def add_backward(dy, cache):
    """(dx, dbranch)."""
    if isinstance(dy, SumGradient):  # of a sum that a later layer has finished
        return dy
    if cache is None:
        return dy, dy
    with cache.linear.bias_gradient() as into:
        return F.add_branch_backward(dy, cache.own, into=into)[:2]


class Dropout(Module):
    """Drops entries while training. See `functional.dropout`."""

    def __init__(self, rate=0.0):
        self.rate = rate

    def forward(self, x, ctx=None):
        if isinstance(x, Unfinished):  # only where nothing is dropped
            return x, None
        return F.dropout(x, self.rate, ctx.key_for(self.path) if ctx and self.rate else None)

    def backward(self, dy, cache):
        return dy if cache is None else F.dropout_backward(dy, cache)


class DropPath(Module):
    """Drops a sample's whole residual branch while training. See `functional.drop_path`."""

    def __init__(self, rate=0.0):
        self.rate = rate

    def forward(self, x, ctx=None):
        key = ctx.key_for(self.path) if ctx and self.rate else None
        if isinstance(x, Unfinished):
            return x._replace(rate=self.rate, key=key), None
        return F.drop_path(x, self.rate, key)

    def backward(self, dy, cache):
        return dy if cache is None else F.drop_path_backward(dy, cache)


class Identity(Module):
    """Returns its input: in the place of positions or a head that a model doesn't have."""

    def forward(self, x, ctx=None, **options):
        return x, None

    def backward(self, dy, cache):
        return dy
