"""Dot products of each sample's tokens with other tokens of the same sample."""

from typing import NamedTuple

from tinyvit.arrays import Array
from tinyvit.dispatch import backward_of, operation


class DotProductsCache(NamedTuple):
    x: Array  # (B, N, D)
    y: Array  # (B, K, D)


@operation(arrays="x y")
def dot_products(x, y):
    """x yᵀ of each sample, (B, N, K), of tokens `x` (B, N, D) and `y` (B, K, D).

    The mask of each class, where x are patches and y class tokens. Strudel et al. 2021, "Segmenter: transformer for
    semantic segmentation", section 3.2.
    """
    if x.ndim != 3 or y.ndim != 3 or len(x) != len(y) or x.shape[2] != y.shape[2]:
        raise ValueError(f"dot_products: expected x (B, N, D) and y (B, K, D), got {x.shape} and {y.shape}")
    return x @ y.mT, DotProductsCache(x, y)


@backward_of(dot_products, result=lambda cache: (*cache.x.shape[:2], cache.y.shape[1]))
def dot_products_backward(dy, cache):
    """Returns (dx, dy) = (g y, gᵀ x), where g is the gradient of the products."""
    return dy @ cache.y, dy.mT @ cache.x
