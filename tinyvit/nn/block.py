"""The MLPs and the residual block."""

from typing import Any, NamedTuple

from tinyvit import functional as F
from tinyvit.arrays import array_module
from tinyvit.functional.dropout import DropoutCache
from tinyvit.functional.layernorm import LayerNormCache
from tinyvit.functional.linear import LinearCache
from tinyvit.nn import init
from tinyvit.nn.attention import Attention, SelfAttentionCache
from tinyvit.nn.layers import Dropout, DropPath, LayerNorm, Linear
from tinyvit.nn.module import Module
from tinyvit.nn.tree import cache_type, tree

ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu_tanh": F.gelu_tanh,
    "quick_gelu": F.quick_gelu,
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
        self.act = ACTIVATIONS[activation]
        self.drop1 = Dropout(drop)
        self.fc2 = Linear(hidden, dim, bias_init=init.normal(1e-6))
        self.drop2 = Dropout(drop)

    def forward(self, x, ctx=None):
        h, c_fc1 = self.fc1(x, ctx)                                            # (B, N, hidden)
        h, c_act = self.act(h)
        h, c_drop1 = self.drop1(h, ctx)
        y, c_fc2 = self.fc2(h, ctx)                                            # (B, N, D)
        y, c_drop2 = self.drop2(y, ctx)
        return y, MlpCache(c_fc1, c_act, c_drop1, c_fc2, c_drop2)

    def backward(self, dy, cache):
        dy = self.drop2.backward(dy, cache.drop2)
        dh = self.fc2.backward(dy, cache.fc2)
        dh = self.drop1.backward(dh, cache.drop1)
        dh = self.act.backward(dh, cache.act)
        return self.fc1.backward(dh, cache.fc1)


GatedMlpCache = cache_type("GatedMlp", "fc1 act fc2")


class GatedMlp(Module):
    """y = (SiLU(a) · b) W₂ᵀ + b₂ with a and b the halves of x W₁ᵀ + b₁. See `functional.swiglu`."""

    def __init__(self, dim, hidden):
        self.fc1 = Linear(dim, 2 * hidden)
        self.fc2 = Linear(hidden, dim)

    def forward(self, x, ctx=None):
        h, c_fc1 = self.fc1(x, ctx)                                            # (B, N, 2·hidden)
        half = h.shape[-1] // 2
        h, c_act = F.swiglu(h[..., :half], h[..., half:])                      # (B, N, hidden)
        y, c_fc2 = self.fc2(h, ctx)
        return y, GatedMlpCache(c_fc1, c_act, c_fc2)

    def backward(self, dy, cache):
        dh = F.swiglu_backward(self.fc2.backward(dy, cache.fc2), cache.act)
        return self.fc1.backward(array_module(dy).concatenate(dh, -1), cache.fc1)


class BlockCache(NamedTuple):
    norm1: LayerNormCache
    attn: SelfAttentionCache
    drop_path1: DropoutCache
    norm2: LayerNormCache
    mlp: MlpCache
    drop_path2: DropoutCache

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

    def forward(self, x, ctx=None):
        a, c_norm1 = self.norm1(x, ctx)
        a, c_attn = self.attn(a, ctx)
        a, c_drop1 = self.drop_path1(a, ctx)
        x = x + a
        m, c_norm2 = self.norm2(x, ctx)
        m, c_mlp = self.mlp(m, ctx)
        m, c_drop2 = self.drop_path2(m, ctx)
        return x + m, BlockCache(c_norm1, c_attn, c_drop1, c_norm2, c_mlp, c_drop2)

    def backward(self, dy, cache):                         # the forward, read from the bottom up
        dm = self.drop_path2.backward(dy, cache.drop_path2)
        dm = self.mlp.backward(dm, cache.mlp)
        dx = dy + self.norm2.backward(dm, cache.norm2)
        da = self.drop_path1.backward(dx, cache.drop_path1)
        da = self.attn.backward(da, cache.attn)
        return dx + self.norm1.backward(da, cache.norm1)
