"""From tokens to logits: pooling and heads."""

from tinyvit import functional as F
from tinyvit.nn import init
from tinyvit.nn.chain import Chain, Operation
from tinyvit.nn.layers import Identity, Linear


def token_pool(global_pool, prefix=1):
    """Tokens (B, prefix+N, D) to one vector (B, D), as an operation.

    global_pool   "token" reads the first, which is the class token; "avg" averages those of the grid, without the
                  `prefix` tokens before them
    """
    return Operation(F.pool_token) if global_pool == "token" else Operation(F.pool_mean, prefix)


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
