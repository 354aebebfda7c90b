"""The smallest layers: Linear, LayerNorm, RMSNorm, Embedding, Dropout, DropPath and Identity."""

from tinyvit import functional as F
from tinyvit.nn import init
from tinyvit.nn.module import Module
from tinyvit.nn.variables import Parameter


class Linear(Module):
    """y = x Wᵀ + b, with weight (out, in) and bias (out,). See `functional.linear`.

    The weight is initialised Xavier-uniform and the bias with zeros, unless other initial values are given.
    """

    def __init__(self, in_features, out_features, bias=True, weight_init=None, bias_init=init.zeros):
        weight_init = weight_init or init.xavier_uniform(in_features, out_features)
        self.weight = Parameter((out_features, in_features), weight_init)
        self.bias = Parameter((out_features,), bias_init) if bias else None

    def forward(self, x, ctx=None):
        return F.linear(x, self.weight.value, self.bias.value if self.bias else None)

    def backward(self, dy, cache):
        with self.gradients() as into:
            dx, *_ = F.linear_backward(dy, cache, into=into)
        return dx


class LayerNorm(Module):
    """Normalises each token to mean 0 and variance 1, then scales and shifts. See `functional.layernorm`."""

    def __init__(self, dim, eps=1e-6):
        self.weight = Parameter((dim,), init.ones)
        self.bias = Parameter((dim,), init.zeros)
        self.eps = eps

    def forward(self, x, ctx=None):
        return F.layernorm(x, self.weight.value, self.bias.value, self.eps)

    def backward(self, dy, cache):
        with self.gradients() as into:
            dx, *_ = F.layernorm_backward(dy, cache, into=into)
        return dx


class RMSNorm(Module):
    """Divides each token by its root mean square, then scales. See `functional.rmsnorm`."""

    def __init__(self, dim, eps=1e-6):
        self.weight = Parameter((dim,), init.ones)
        self.eps = eps

    def forward(self, x, ctx=None):
        return F.rmsnorm(x, self.weight.value, self.eps)

    def backward(self, dy, cache):
        with self.gradients() as into:
            dx, _ = F.rmsnorm_backward(dy, cache, into=into)
        return dx


class Embedding(Module):
    """A learned vector for each number, of a token or a class: `weight` (V, D), which starts as N(0, 0.02²).

    lookup   the operation: `functional.embedding` of tokens (B, T), `functional.embed_labels` of labels (B,)
    """

    def __init__(self, count, dim, lookup=F.embedding):
        self.weight = Parameter((count, dim), init.normal(0.02), decay=False)
        self.lookup = lookup

    def forward(self, numbers, ctx=None):
        return self.lookup(self.weight.value, numbers)

    def backward(self, dy, cache):
        """Adds to the gradient of the weight; the numbers have none."""
        with self.gradients() as into:
            self.lookup.backward(dy, cache, into=into)


class Dropout(Module):
    """Drops entries while training. See `functional.dropout`."""

    operation = staticmethod(F.dropout)

    def __init__(self, rate=0.0):
        self.rate = rate

    def forward(self, x, ctx=None):
        return self.operation(x, self.rate, ctx.key_for(self.path) if ctx and self.rate else None)

    def backward(self, dy, cache):
        return self.operation.backward(dy, cache)


class DropPath(Dropout):
    """Drops a sample's whole residual branch while training. See `functional.drop_path`."""

    operation = staticmethod(F.drop_path)


class Identity(Module):
    """Returns its input: in the place of positions or a head that a model doesn't have."""

    def forward(self, x, ctx=None, **options):
        return x, None

    def backward(self, dy, cache):
        return dy
