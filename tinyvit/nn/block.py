"""The MLP and the residual block."""

from typing import Any, NamedTuple

from tinyvit import functional as F
from tinyvit.functional.dropout import DropoutCache
from tinyvit.functional.layernorm import LayerNormCache
from tinyvit.functional.linear import LinearCache
from tinyvit.nn import init
from tinyvit.nn.attention import Attention, SelfAttentionCache
from tinyvit.nn.layers import (
    Dropout,
    DropPath,
    FinishedCache,
    LayerNorm,
    Linear,
    Unfinished,
    add,
    add_backward,
    passes_on,
)
from tinyvit.nn.module import Module
from tinyvit.nn.recompute import keeps_inputs_only, recomputed, with_recompute
from tinyvit.nn.tree import tree

ACTIVATIONS = {
    "gelu": (F.gelu, F.gelu_backward),
    "gelu_tanh": (F.gelu_tanh, F.gelu_tanh_backward),
    "quick_gelu": (F.quick_gelu, F.quick_gelu_backward),
}


class MlpCache(NamedTuple):
    fc1: LinearCache
    act: Any
    drop1: DropoutCache
    fc2: LinearCache
    drop2: DropoutCache

    __repr__ = tree


class Mlp(Module):
    """y = GELU(x W₁ᵀ + b₁) W₂ᵀ + b₂ for each token; W₁ is (hidden, D), W₂ (D, hidden).

    Dosovitskiy et al. 2021, eq. 3. Derived in notebooks/04.
    """

    def __init__(self, dim, hidden, activation="gelu", drop=0.0):
        self.fc1 = Linear(dim, hidden, bias_init=init.normal(1e-6))
        self.act, self.act_backward = ACTIVATIONS[activation]
        self.drop1 = Dropout(drop)
        self.fc2 = Linear(hidden, dim, bias_init=init.normal(1e-6))
        self.drop2 = Dropout(drop)

    def forward(self, x, ctx=None, bias_later=False):
        h, c_fc1 = self.fc1(x, ctx, bias_later=self.act is F.gelu)             # (B, N, hidden)
        h, c_act = self.activated(h)
        h, c_drop1 = self.drop1(h, ctx)
        y, c_fc2 = self.fc2(h, ctx, bias_later=bias_later and passes_on(self.drop2))  # (B, N, D)
        y, c_drop2 = self.drop2(y, ctx)
        return y, MlpCache(c_fc1, c_act, c_drop1, c_fc2, c_drop2)

    def backward(self, dy, cache):
        dy = self.drop2.backward(dy, cache.drop2)
        dh = self.fc2.backward(dy, cache.fc2)
        dh = self.drop1.backward(dh, cache.drop1)
        dh = self.activated_backward(dh, cache.act)
        return self.fc1.backward(dh, cache.fc1)

    def activated(self, h):
        """The activation of fc1's output, which on a GPU adds its bias in the same pass."""
        if not isinstance(h, Unfinished):
            return self.act(h)
        y, cache = F.bias_gelu(h.product, h.linear.bias.value)
        return y, FinishedCache(cache, h.linear)

    def activated_backward(self, dh, cache):
        if not isinstance(cache, FinishedCache):
            return self.act_backward(dh, cache)
        with cache.linear.bias_gradient() as into:
            dh, _ = F.bias_gelu_backward(dh, cache.own, into=into)
        return dh


class BlockCache(NamedTuple):
    norm1: LayerNormCache
    attn: SelfAttentionCache
    drop_path1: DropoutCache
    norm2: LayerNormCache
    mlp: MlpCache
    drop_path2: DropoutCache
    sum: Any

    __repr__ = tree


class Block(Module):
    """The pre-norm residual block: x′ = x + Attention(LayerNorm(x)), y = x′ + MLP(LayerNorm(x′)).

    Dosovitskiy et al. 2021, eqs. 2–3; stochastic depth on both branches. Derived in notebooks/04.
    """

    def __init__(self, dim, num_heads, mlp_hidden, *, qkv_bias=True, activation="gelu", norm_eps=1e-6,
                 drop=0.0, attn_drop=0.0, drop_path=0.0, rope_grid=None):  # fmt: skip
        self.norm1 = LayerNorm(dim, norm_eps)
        self.attn = Attention(dim, num_heads, qkv_bias, attn_drop, drop, rope_grid)
        self.drop_path1 = DropPath(drop_path)
        self.norm2 = LayerNorm(dim, norm_eps)
        self.mlp = Mlp(dim, mlp_hidden, activation, drop)
        self.drop_path2 = DropPath(drop_path)

    def forward(self, x, ctx=None, sum_later=False):
        """With `sum_later`, y may come as an `Unfinished`, as x may: see `in_turn`."""
        x, a, c_norm1 = self.norm1.beside(x, ctx)          # x, and its norm
        a, c_attn = self.attn(a, ctx, bias_later=passes_on(self.drop_path1))  # on a GPU: the sum adds it
        a, c_drop1 = self.drop_path1(a, ctx)
        x, m, c_norm2 = self.norm2.of_sum(x, a, ctx)       # x + a, and its norm
        m, c_mlp = self.mlp(m, ctx, bias_later=passes_on(self.drop_path2))
        m, c_drop2 = self.drop_path2(m, ctx)
        y, c_sum = add(x, m, sum_later)
        return y, BlockCache(c_norm1, c_attn, c_drop1, c_norm2, c_mlp, c_drop2, c_sum)

    def backward(self, dy, cache):                         # the forward, read from the bottom up
        dx, dm = add_backward(dy, cache.sum)
        dm = self.drop_path2.backward(dm, cache.drop_path2)
        dm = self.mlp.backward(dm, cache.mlp)
        dx, da = self.norm2.of_sum_backward(dx, dm, cache.norm2)
        da = self.drop_path1.backward(da, cache.drop_path1)
        da = self.attn.backward(da, cache.attn)
        return self.norm1.beside_backward(dx, da, cache.norm1)     # dx + norm1.backward(da)


def in_turn(modules, x, ctx=None, then=None):
    """x through modules, one after the other, and a tuple of their caches, by recomputation if the context asks for it.

    On a GPU a block leaves its last sum to the norm that follows, which computes it in its own pass: the first norm of
    the next block or, with `then`, that one, which the caller runs next. The bits are those of the blocks one by one.
    Recomputation keeps finished sums, one array for each block.
    """
    caches = []
    for module, following in zip(modules, [*modules[1:], then]):
        if leaves_sum(module, following) and not keeps_inputs_only(ctx):
            x, cache = module(x, ctx, sum_later=True)
        else:
            x, cache = with_recompute(module, x, ctx=ctx)
        caches.append(cache)
    return x, tuple(caches)


def in_turn_backward(dy, modules, caches):
    """The gradient with respect to the input of the first module."""
    for module, cache in zip(reversed(modules), reversed(caches)):
        dy = module.backward(dy, recomputed(cache))
    return dy


def leaves_sum(module, following):
    """Whether a module may leave its last sum to the one after it: a plain block to a norm, or to another's first."""
    norm = following.norm1 if type(following) is Block else following
    return type(module) is Block and type(norm) is LayerNorm
