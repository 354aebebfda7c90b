"""Multi-head self-attention."""

from typing import Any, NamedTuple

from tinyvit import functional as F
from tinyvit.functional.heads import MergeHeadsCache, SplitHeadsCache
from tinyvit.functional.linear import LinearCache
from tinyvit.functional.rope import RopeCache
from tinyvit.functional.tiled_attention import MIN_TILED_TOKENS
from tinyvit.nn import init
from tinyvit.nn.layers import Dropout, Linear
from tinyvit.nn.module import Module
from tinyvit.nn.tree import tree


class SelfAttentionCache(NamedTuple):
    qkv: LinearCache
    split: SplitHeadsCache
    rope: RopeCache | None  # of the queries; the keys' is the same
    heads: Any              # of the attention that ran: heads.probs is (B, H, N, N) in each of them
    merge: MergeHeadsCache
    proj: LinearCache
    proj_drop: Any

    __repr__ = tree


class Attention(Module):
    """Multi-head self-attention: each token attends to all tokens, in H ways at once:

        q, k, v = x W_qkvᵀ   headₕ = attention(qₕ, kₕ, vₕ, biasₕ)   y = [head₁ … head_H] W_projᵀ

    x and y are (B, N, D), a head is d = D/H wide. With `rope_grid` (rows, columns) queries and keys are rotated
    by their patch's position first; `Context.patches` gives another grid. A `bias` broadcasts to the scores
    (B, H, N, N): relative positions (H, N, N), a causal mask (N, N) of zeros and −∞, a padding mask (B, 1, 1, N). With
    one, `backward` returns (dx, dbias), and the caller passes dbias on; without, dx alone.
    From MIN_TILED_TOKENS on, memory grows linearly with the tokens, except where probabilities are dropped in training
    (`attn_drop`): their mask is N×N, and memory quadratic.
    Vaswani et al. 2017, section 3.2.2; Dosovitskiy et al. 2021, eqs. 5–8. Derived in notebooks/04.
    """

    def __init__(self, dim, num_heads, qkv_bias=True, attn_drop=0.0, proj_drop=0.0, rope_grid=None):
        if dim % num_heads:
            raise ValueError(f"embed_dim {dim} is not divisible by num_heads {num_heads}")
        self.num_heads, self.head_dim = num_heads, dim // num_heads
        self.rope_grid = rope_grid
        # Xavier for queries, keys and values as the three D×D matrices that they are.
        self.qkv = Linear(dim, 3 * dim, qkv_bias, weight_init=init.xavier_uniform(dim, dim))
        self.qkv.weight.parts = 3
        self.attn_drop = attn_drop
        self.proj = Linear(dim, dim)
        self.proj_drop = Dropout(proj_drop)

    def forward(self, x, ctx=None, bias=None):
        qkv, c_qkv = self.qkv(x, ctx)                                                 # (B, N, 3D)
        (q, k, v), c_split = F.split_heads(qkv, self.num_heads)                       # each (B, H, N, d)
        c_rope = None
        if self.rope_grid:
            grid, index = (ctx and ctx.patches) or (self.rope_grid, None)
            q, c_rope = F.rope(q, grid, index=index)
            k, _ = F.rope(k, grid, index=index)                                       # by the same tables
        key = ctx.key_for(self.path) if ctx and self.attn_drop else None
        if key is not None:
            heads, c_heads = F.attention_dropout(q, k, v, bias, rate=self.attn_drop, key=key)
        elif x.shape[1] >= MIN_TILED_TOKENS:
            heads, c_heads = F.tiled_attention(q, k, v, bias)
        else:
            heads, c_heads = F.attention(q, k, v, bias)                               # (B, H, N, d)
        heads, c_merge = F.merge_heads(heads)                                         # (B, N, D)
        y, c_proj = self.proj(heads, ctx)
        y, c_drop = self.proj_drop(y, ctx)
        return y, SelfAttentionCache(c_qkv, c_split, c_rope, c_heads, c_merge, c_proj, c_drop)

    def backward(self, dy, cache):
        dy = self.proj_drop.backward(dy, cache.proj_drop)
        dheads = self.proj.backward(dy, cache.proj)                                   # (B, N, D)
        dheads = F.merge_heads_backward(dheads, cache.merge)                          # (B, H, N, d)
        dqkv = F.attention_backward(dheads, cache.heads)
        dbias = dqkv[3:]                                                              # nothing if there was no bias
        if cache.rope:
            dqkv = *(F.rope_backward(dturned, cache.rope) for dturned in dqkv[:2]), dqkv[2]
        dx = self.qkv.backward(F.split_heads_backward(dqkv, cache.split), cache.qkv)
        return (dx, *dbias) if dbias else dx
