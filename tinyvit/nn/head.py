"""From tokens to logits: pooling and heads."""

from tinyvit import functional as F
from tinyvit.nn import init
from tinyvit.nn.chain import Chain, Operation
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


class MlpHead(Chain):
    """The pre-training head: one hidden layer with tanh, then the logits, if there are classes. Section 3.1."""

    transparent = True

    def __init__(self, dim, hidden, num_classes):
        self.pre_logits = Chain(fc=Linear(dim, hidden, weight_init=init.lecun_normal(dim)))  # (B, hidden)
        self.tanh = Operation(F.tanh)
        self.head = linear_head(hidden, num_classes)                                         # (B, K)


def linear_head(dim, num_classes):
    """A linear layer that starts at zero, so that every class is equally likely at first; Identity without classes."""
    return Linear(dim, num_classes, weight_init=init.zeros) if num_classes else Identity()


def fc_head(dim, num_classes):
    """`linear_head` under timm's name for networks of feature maps, `head.fc`."""
    return Chain(fc=linear_head(dim, num_classes))
