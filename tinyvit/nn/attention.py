"""Multi-head self-attention."""

from typing import Any, NamedTuple

import numpy as np

from tinyvit import functional as F
from tinyvit.backend import array_module
from tinyvit.functional.attention import AttentionDropoutCache
from tinyvit.functional.linear import LinearCache
from tinyvit.functional.rope import RopeCache
from tinyvit.functional.tiled_attention import TiledAttentionCache
from tinyvit.nn import init
from tinyvit.nn.layers import Dropout, Linear
from tinyvit.nn.module import Module

# Tokens from which on attention goes in tiles. Computing the scores once more in the backward then takes no longer than
# moving all of them through memory (equal on a CPU from about 600 tokens on), and a step needs half of the memory.
TILED_FROM = 1024


class SelfAttentionCache(NamedTuple):
    qkv: LinearCache
    rope: tuple[RopeCache, RopeCache] | None  # of the queries and of the keys
    heads: Any                                # of the attention in use: heads.probs is (B, H, N, N) in each of them
    proj: LinearCache
    proj_drop: Any


class Attention(Module):
    """Every token takes from all tokens, in H ways at once:

        q, k, v = x W_qkvᵀ   headₕ = attention(qₕ, kₕ, vₕ)   y = [head₁ … head_H] W_projᵀ

    x and y are (B, N, D), a head is d = D/H wide. With `rope_grid` (rows, columns) queries and keys are rotated
    by their patch's position first. From TILED_FROM tokens on, memory grows linearly with them, except where
    probabilities are dropped (`attn_drop`, in training): their mask is N×N, and so is the rest then.
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

    def forward(self, x, ctx=None):
        B, N, D = x.shape
        qkv, c_qkv = self.qkv(x, ctx)                                                 # (B, N, 3D)
        qkv = qkv.reshape(B, N, 3, self.num_heads, self.head_dim)
        q, k, v = qkv.transpose(2, 0, 3, 1, 4)                                        # each (B, H, N, d)
        c_rope = None
        if self.rope_grid:
            q, c_q = F.rope(q, self.rope_grid)
            k, c_k = F.rope(k, self.rope_grid)
            c_rope = c_q, c_k
        key = ctx.key_for(self.path) if ctx and self.attn_drop else None
        if key is not None:
            heads, c_heads = F.attention_dropout(q, k, v, rate=self.attn_drop, key=key)
        elif N >= TILED_FROM:
            heads, c_heads = F.tiled_attention(q, k, v)
        else:
            heads, c_heads = F.attention(q, k, v)                                     # (B, H, N, d)
        heads = heads.transpose(0, 2, 1, 3).reshape(B, N, D)
        y, c_proj = self.proj(heads, ctx)
        y, c_drop = self.proj_drop(y, ctx)
        return y, SelfAttentionCache(c_qkv, c_rope, c_heads, c_proj, c_drop)

    def backward(self, dy, cache):
        dy = self.proj_drop.backward(dy, cache.proj_drop)
        dheads = self.proj.backward(dy, cache.proj)                                   # (B, N, D)
        B, N, D = dheads.shape
        dheads = dheads.reshape(B, N, self.num_heads, self.head_dim)
        dheads = dheads.transpose(0, 2, 1, 3)                                         # (B, H, N, d)
        if isinstance(cache.heads, AttentionDropoutCache):
            dq, dk, dv = F.attention_dropout_backward(dheads, cache.heads)
        elif isinstance(cache.heads, TiledAttentionCache):
            dq, dk, dv = F.tiled_attention_backward(dheads, cache.heads)
        else:
            dq, dk, dv = F.attention_backward(dheads, cache.heads)
        if cache.rope:
            c_q, c_k = cache.rope
            dq, dk = F.rope_backward(dq, c_q), F.rope_backward(dk, c_k)
        return self.qkv.backward(side_by_side(dq, dk, dv).reshape(B, N, 3 * D), cache.qkv)


def side_by_side(q, k, v):
    """Queries, keys and values (B, H, N, d) as one array (B, N, 3, H, d), the memory that they lie in if they do."""
    joined = q.base
    if joined is not None and k.base is joined and v.base is joined and joined.ndim == 5:
        parts = joined.transpose(2, 0, 3, 1, 4)
        if len(parts) == 3 and all(map(is_same, (q, k, v), parts)):
            return joined
    return array_module(q).stack([x.transpose(0, 2, 1, 3) for x in (q, k, v)], axis=2)


def is_same(x, y):
    """Whether two arrays are one and the same piece of memory."""
    return x.shape == y.shape and x.strides == y.strides and address(x) == address(y)


def address(x):
    return x.__array_interface__["data"][0] if array_module(x) is np else x.data.ptr
