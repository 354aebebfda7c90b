"""A transformer for texts, in which a word sees the words before it."""

from functools import lru_cache

import numpy as np

from tinyvit import functional as F
from tinyvit.backend import constant, device_of
from tinyvit.nn import init
from tinyvit.nn.attention import Attention
from tinyvit.nn.block import Block
from tinyvit.nn.layers import Embedding, LayerNorm, Linear
from tinyvit.nn.module import Module
from tinyvit.nn.stack import stack, stack_backward
from tinyvit.nn.tree import cache_type
from tinyvit.nn.variables import Parameter

POSITION_STD = 0.01  # initial standard deviation, as in the paper's code


class CausalAttention(Attention):
    """`Attention` in which a token takes from itself and from those before it: no later one gets a gradient from it."""

    def forward(self, x, ctx=None):
        mask = causal_mask(x.shape[1], device_of(x), self.storage.dtype.name)
        return super().forward(x, ctx, mask)

    def backward(self, dy, cache):
        dx, _ = super().backward(dy, cache)  # the mask is a constant
        return dx


@lru_cache(maxsize=64)
def causal_mask(count, device="cpu", dtype="float64"):
    """The bias (T, T) of attention in which query i sees the keys 0 to i: 0 for these, −∞ for the others."""
    return constant(np.triu(np.full((count, count), -np.inf), 1), device, np.dtype(dtype))


TextCache = cache_type("Text", "token_embed positions blocks take norm proj")


class TextTower(Module):
    """Texts (K, T) of tokens into their places (K, P) in the space that they share with images.

    Each token's vector and its position's go through causal blocks. What is read is the vector at the text's end, the
    only one that has seen all words. The token of the end is the one with the largest number, and what comes behind it
    is not seen. Radford et al. 2021, section 2.4.
    """

    def __init__(self, config):
        dim = config.text_dim
        self.token_embed = Embedding(config.vocab_size, dim)
        self.pos_embed = Parameter((1, config.context_length, dim), init.normal(POSITION_STD), decay=False)
        self.blocks = []
        for _ in range(config.text_depth):
            block = Block(dim, config.text_heads, int(dim * config.mlp_ratio), activation=config.activation,
                          norm_eps=config.norm_eps)  # fmt: skip
            block.attn = CausalAttention(dim, config.text_heads)
            self.blocks.append(block)
        self.norm = LayerNorm(dim, config.norm_eps)
        self.proj = projection(dim, config.projection_dim)

    def forward(self, tokens, ctx=None):
        T, most = tokens.shape[-1], self.pos_embed.shape[1]
        if tokens.ndim != 2 or not 0 < T <= most:
            raise ValueError(f"expected texts (K, T) of 1 to {most} tokens, got {tokens.shape}")
        x, c_embed = self.token_embed(tokens, ctx)                             # (K, T, D)
        x, c_positions = F.add_positions(x, self.pos_embed.value[:, :T])
        x = F.cast(x, self.storage.compute_dtype)
        x, c_blocks = stack(self.blocks, x, ctx)
        x, c_take = F.take_tokens(x, tokens.argmax(-1)[:, None])               # (K, 1, D)
        x, c_norm = self.norm(x, ctx)
        y, c_proj = self.proj(x, ctx)                                          # (K, 1, P)
        return y[:, 0], TextCache(c_embed, c_positions, c_blocks, c_take, c_norm, c_proj)

    def backward(self, dy, cache):
        dx = self.proj.backward(dy[:, None], cache.proj)
        dx = self.norm.backward(dx, cache.norm)
        dx = F.take_tokens_backward(dx, cache.take)
        dx = stack_backward(self.blocks, dx, cache.blocks)
        dx = F.cast(dx, self.pos_embed.data.dtype)
        with self.gradients() as (dpositions,):
            into = dpositions if dpositions is False else dpositions[:, : dx.shape[1]]
            dx, _ = F.add_positions_backward(dx, cache.positions, into=(into,))
        self.token_embed.backward(dx, cache.token_embed)


def projection(dim, width):
    """A linear map without bias into the space that images and texts share."""
    return Linear(dim, width, bias=False, weight_init=init.normal(dim**-0.5))
