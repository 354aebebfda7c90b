"""The residual block of a DiT, which a condition modulates, and what it is made of.

Peebles & Xie 2023, "Scalable diffusion models with transformers".
"""

from tinyvit import functional as F
from tinyvit.arrays import array_module
from tinyvit.nn import init
from tinyvit.nn.attention import Attention
from tinyvit.nn.block import Mlp
from tinyvit.nn.chain import Chain, Operation
from tinyvit.nn.layers import Linear
from tinyvit.nn.module import Module
from tinyvit.nn.tree import cache_type
from tinyvit.operands import LOW_PRECISION


class PlainNorm(Module):
    """Layer norm without weight and bias, which come from the condition. See `functional.layernorm`."""

    def __init__(self, dim, eps):
        self.dim, self.eps = dim, eps

    def forward(self, x, ctx=None):
        xp, dtype = array_module(x), "float32" if str(x.dtype) in LOW_PRECISION else x.real.dtype
        return F.layernorm(x, xp.ones(self.dim, dtype), xp.zeros(self.dim, dtype), self.eps)

    def backward(self, dy, cache):
        return F.layernorm_backward(dy, cache, into=(False, False))[0]


DiTBlockCache = cache_type("DiTBlock", "adaLN_modulation norm1 modulate1 attn gate1 norm2 modulate2 mlp gate2")


class DiTBlock(Module):
    """The residual block with adaLN-Zero: the condition c says how the input of both branches is scaled and shifted,
    and how much of them counts.

        offset₁, gain₁, gate₁, offset₂, gain₂, gate₂ = SiLU(c) Wᵀ + b
        x′ = x + gate₁ · Attention(LayerNorm(x) (1 + gain₁) + offset₁)
        y = x′ + gate₂ · MLP(LayerNorm(x′) (1 + gain₂) + offset₂)

    W and b begin at zero, and with them the block as the identity. It takes and gives (B, 1+N, D), c in front of x.
    Peebles & Xie 2023, section 3.2 and figure 3. Derived in notebooks/18.
    """

    def __init__(self, dim, num_heads, mlp_hidden, norm_eps=1e-6):
        self.norm1 = PlainNorm(dim, norm_eps)
        self.attn = Attention(dim, num_heads)
        self.norm2 = PlainNorm(dim, norm_eps)
        self.mlp = Mlp(dim, mlp_hidden, "gelu_tanh")
        self.adaLN_modulation = Chain(Operation(F.silu), Linear(dim, 6 * dim, weight_init=init.zeros))

    def forward(self, x, ctx=None):
        c, x = split(x)
        modulation, c_modulation = self.adaLN_modulation(c, ctx)                           # (B, 6D)
        offset1, gain1, gate1, offset2, gain2, gate2 = columns(modulation, 6)
        a, c_norm1 = self.norm1(x, ctx)
        a, c_modulate1 = F.modulate(a, offset1, gain1)
        a, c_attn = self.attn(a, ctx)
        x, c_gate1 = F.add_gated(x, a, gate1)
        m, c_norm2 = self.norm2(x, ctx)
        m, c_modulate2 = F.modulate(m, offset2, gain2)
        m, c_mlp = self.mlp(m, ctx)
        x, c_gate2 = F.add_gated(x, m, gate2)
        return join(c, x), DiTBlockCache(
            c_modulation, c_norm1, c_modulate1, c_attn, c_gate1, c_norm2, c_modulate2, c_mlp, c_gate2
        )

    def backward(self, dy, cache):
        dc, dx = split(dy)
        dx, dm, dgate2 = F.add_gated_backward(dx, cache.gate2)
        dm = self.mlp.backward(dm, cache.mlp)
        dm, doffset2, dgain2 = F.modulate_backward(dm, cache.modulate2)
        dx = dx + self.norm2.backward(dm, cache.norm2)
        dx, da, dgate1 = F.add_gated_backward(dx, cache.gate1)
        da = self.attn.backward(da, cache.attn)
        da, doffset1, dgain1 = F.modulate_backward(da, cache.modulate1)
        dx = dx + self.norm1.backward(da, cache.norm1)
        dmodulation = array_module(dy).concatenate([doffset1, dgain1, dgate1, doffset2, dgain2, dgate2], axis=1)
        return join(dc + self.adaLN_modulation.backward(dmodulation, cache.adaLN_modulation), dx)


def split(x):
    """The condition (B, D) and the tokens (B, N, D) of both together (B, 1+N, D)."""
    return x[:, 0], x[:, 1:]


def join(condition, tokens):
    return array_module(tokens).concatenate([condition[:, None], tokens], axis=1)


def columns(x, count):
    """`count` equal parts of the last axis of `x` (B, count · D)."""
    width = x.shape[1] // count
    return [x[:, i * width : (i + 1) * width] for i in range(count)]
