"""Numbers of words into vectors: a row of a table for each."""

from typing import NamedTuple

import numpy as np

from tinyvit.arrays import Array, array_module
from tinyvit.dispatch import backward_of, operation


class EmbeddingCache(NamedTuple):
    index: Array  # (B, T)
    shape: tuple  # (V, D) of the table


@operation(any_dtype="index")
def embedding(weight, index):
    """Row index[b, t] of the table `weight` (V, D) for each word t of text b: (B, T, D).

    It is the product of the table with a one-hot vector for each word, without the zeros. Derived in notebooks/17.

    Raises ValueError unless `index` (B, T) holds ints from 0 to V − 1; on a GPU only its shape and dtype are looked at.
    """
    check_words(weight, index)
    return weight[index], EmbeddingCache(index, weight.shape)


@backward_of(
    embedding, result=lambda cache: (*cache.index.shape, cache.shape[1]), parameters=lambda cache: [cache.shape]
)
def embedding_backward(dy, cache):
    """A row's gradient is the sum of dy over all places where its word stands, always added up in the same order.

    Sorted by word, the places of each word are neighbours. Adding to every one the one before it, then the two before
    that, then the four, as long as they are of the same word, leaves the word's sum at its last place.
    """
    (V, D), xp = cache.shape, array_module(dy)
    words = cache.index.astype("int64").ravel()
    order = (words * max(1, len(words)) + xp.arange(len(words))).argsort()  # equal words stay in their order
    words, sums = words[order], dy.reshape(-1, D)[order]
    step = 1
    while step < len(words):
        same = (words[step:] == words[:-step])[:, None]
        sums = xp.concatenate([sums[:step], sums[step:] + xp.where(same, sums[:-step], 0)])
        step *= 2
    is_last = xp.concatenate([words[1:] != words[:-1], xp.ones(min(1, len(words)), bool)])
    dweight = xp.zeros((V + 1, D), dy.dtype)
    dweight[xp.where(is_last, words, V)] = sums  # sums that are not a word's last go to a row of their own
    return dweight[:V]


def check_words(weight, index):
    """Raise ValueError unless `index` (B, T) fits the table `weight` (V, D)."""
    if weight.ndim != 2 or index.ndim != 2 or index.dtype.kind not in "iu":
        raise ValueError(
            f"embedding: expected a table (V, D) and an index (B, T) of ints, got {weight.shape} and "
            f"{index.dtype} {index.shape}"
        )
    if array_module(index) is np and index.size and not 0 <= index.min() <= index.max() < len(weight):
        raise ValueError(
            f"embedding: expected an index from 0 to {len(weight) - 1}, got {index.min()} to {index.max()}"
        )
