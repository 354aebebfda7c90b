"""Cutting tokens into the heads of attention, and joining the heads again."""

from typing import NamedTuple

from tinyvit.arrays import array_module
from tinyvit.dispatch import backward_of, operation


class SplitHeadsCache(NamedTuple):
    shape: tuple  # of x
    parts: int
    num_heads: int


def parts_shapes(cache):
    """The shapes (B, H, N, d) of queries, keys and values."""
    (B, N, D), parts, H = cache
    return [(B, H, N, D // (parts * H))] * parts


@operation(any_dtype="x")
def split_heads(x, num_heads, parts=3):
    """A tuple of queries, keys and values (B, H, N, d), views of x (B, N, 3·H·d), in which they lie in this order.

    `parts` is 3; cross-attention cuts its queries with parts=1, and its keys and values with parts=2.
    Raises ValueError if x can't be cut like this.
    """
    if x.ndim != 3 or num_heads < 1 or x.shape[2] % (parts * num_heads):
        raise ValueError(f"split_heads: expected x (B, N, {parts} parts · {num_heads} heads · d), got {x.shape}")
    B, N, D = x.shape
    cut = x.reshape(B, N, parts, num_heads, D // (parts * num_heads)).transpose(2, 0, 3, 1, 4)
    return tuple(cut), SplitHeadsCache(x.shape, parts, num_heads)


@backward_of(split_heads, result=parts_shapes)
def split_heads_backward(dy, cache):
    """dx from the gradients of the parts, the first entries of dy: `attention_backward`'s result, as it is, will do."""
    joined = getattr(dy, "joined", None)
    if joined is None:
        joined = array_module(dy[0]).stack([part.transpose(0, 2, 1, 3) for part in dy[: cache.parts]], axis=2)
    return joined.reshape(cache.shape)


class MergeHeadsCache(NamedTuple):
    shape: tuple  # of x


def merged_shape(cache):
    B, H, N, d = cache.shape
    return B, N, H * d


@operation(any_dtype="x")
def merge_heads(x):
    """Tokens (B, N, H·d) from heads x (B, H, N, d): those of a token side by side."""
    if x.ndim != 4:
        raise ValueError(f"merge_heads: expected x (B, H, N, d), got {x.shape}")
    B, H, N, d = x.shape
    return x.transpose(0, 2, 1, 3).reshape(B, N, H * d), MergeHeadsCache(x.shape)


@backward_of(merge_heads, result=merged_shape)
def merge_heads_backward(dy, cache):
    """dx (B, H, N, d): a view of dy, cut into heads again."""
    B, H, N, d = cache.shape
    return dy.reshape(B, N, H, d).transpose(0, 2, 1, 3)


class HeadGradients(tuple):
    """(dq, dk, dv), and dbias as a fourth entry if there was a bias, with the array that the first three are views of.

    joined  (B, N, 3, H, d), which `split_heads_backward` returns without a copy; None if they are arrays of their own
    """

    def __new__(cls, gradients, joined=None):
        self = super().__new__(cls, gradients)
        self.joined = joined
        return self

    def with_bias(self, dbias):
        """These gradients and that of the bias."""
        return HeadGradients((*self, dbias), self.joined)


def empty_gradients(q, k, v, dtype=None):
    """New arrays for dq, dk and dv, joined in one if their shapes allow it."""
    xp, dtype = array_module(q), dtype or q.dtype
    if not q.shape == k.shape == v.shape:
        return HeadGradients(xp.empty(x.shape, dtype) for x in (q, k, v))
    B, H, N, d = q.shape
    return joined_gradients(xp.empty((B, N, 3, H, d), dtype))


def joined_gradients(joined):
    """dq, dk and dv as views of one array (B, N, 3, H, d)."""
    return HeadGradients(joined.transpose(2, 0, 3, 1, 4), joined)
