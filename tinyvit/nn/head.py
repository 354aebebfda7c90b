"""From tokens to logits: pooling and heads."""

from typing import NamedTuple

from tinyvit import functional as F
from tinyvit.functional.linear import LinearCache
from tinyvit.functional.tanh import TanhCache
from tinyvit.nn import init
from tinyvit.nn.layers import Identity, Linear
from tinyvit.nn.module import Module


class TokenPool(Module):
    """Reads the first token, which is the class token: (B, N+1, D) to (B, D)."""

    def forward(self, tokens, ctx=None):
        return F.pool_token(tokens)

    def backward(self, dfeatures, cache):
        return F.pool_token_backward(dfeatures, cache)


class MeanPool(Module):
    """Averages the tokens of the grid, without the `prefix` tokens before them: (B, prefix+N, D) to (B, D)."""

    def __init__(self, prefix=1):
        self.prefix = prefix

    def forward(self, tokens, ctx=None):
        return F.pool_mean(tokens, self.prefix)

    def backward(self, dfeatures, cache):
        return F.pool_mean_backward(dfeatures, cache)


class MapPool(Module):
    """Averages feature maps (B, C, H, W) over all positions: (B, C)."""

    def forward(self, maps, ctx=None):
        return F.global_avg_pool2d(maps)

    def backward(self, dfeatures, cache):
        return F.global_avg_pool2d_backward(dfeatures, cache)


class MlpHeadCache(NamedTuple):
    pre_logits: LinearCache
    tanh: TanhCache
    head: LinearCache


class MlpHead(Module):
    """The pre-training head: one hidden layer with tanh, then the logits, if there are classes. Section 3.1."""

    transparent = True

    def __init__(self, dim, hidden, num_classes):
        self.pre_logits = PreLogits(dim, hidden)
        self.head = linear_head(hidden, num_classes)

    def forward(self, features, ctx=None):
        h, c_pre = self.pre_logits(features, ctx)                              # (B, hidden)
        h, c_tanh = F.tanh(h)
        logits, c_head = self.head(h, ctx)                                     # (B, K)
        return logits, MlpHeadCache(c_pre, c_tanh, c_head)

    def backward(self, dlogits, cache):
        dh = self.head.backward(dlogits, cache.head)
        dh = F.tanh_backward(dh, cache.tanh)
        return self.pre_logits.backward(dh, cache.pre_logits)


class PreLogits(Module):
    """Only gives the hidden layer timm's name, `pre_logits.fc`."""

    def __init__(self, dim, hidden):
        self.fc = Linear(dim, hidden, weight_init=init.lecun_normal(dim))

    def forward(self, features, ctx=None):
        return self.fc(features, ctx)

    def backward(self, dh, cache):
        return self.fc.backward(dh, cache)


def linear_head(dim, num_classes):
    """A linear layer that starts at zero, so that every class is equally likely at first; Identity without classes."""
    return Linear(dim, num_classes, weight_init=init.zeros) if num_classes else Identity()
