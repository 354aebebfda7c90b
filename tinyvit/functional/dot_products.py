"""Dot products of each sample's tokens with other tokens of the same sample."""

from typing import NamedTuple

from tinyvit.arrays import Array
from tinyvit.dispatch import backward_of, operation


class DotProductsCache(NamedTuple):
    q: Array  # (B, N, D)
    k: Array  # (B, K, D)


@operation(arrays="q k")
def dot_products(q, k):
    """q kᵀ of each sample, (B, N, K), of tokens `q` (B, N, D) and `k` (B, K, D).

    The mask of each class, where q are patches and k class tokens. Strudel et al. 2021, "Segmenter: transformer for
    semantic segmentation", section 3.2. Derived in notebooks/22.
    """
    if q.ndim != 3 or k.ndim != 3 or len(q) != len(k) or q.shape[2] != k.shape[2]:
        raise ValueError(f"dot_products: expected q (B, N, D) and k (B, K, D), got {q.shape} and {k.shape}")
    return q @ k.mT, DotProductsCache(q, k)


@backward_of(dot_products, result=lambda cache: (*cache.q.shape[:2], cache.k.shape[1]))
def dot_products_backward(dy, cache):
    """Returns (dq, dk) = (dy k, dyᵀ q)."""
    return dy @ cache.k, dy.mT @ cache.q
