"""Attention in a row into which sequences of several lengths are packed one after the other."""

from functools import lru_cache
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np

from tinyvit.arrays import Array, array_module
from tinyvit.dispatch import backward_of, operation
from tinyvit.functional.attention import attention, attention_backward, check_shapes, heads_shape
from tinyvit.functional.heads import empty_gradients
from tinyvit.functional.tiled_attention import MIN_TILED_TOKENS, tiled_attention


class PackedAttentionCache(NamedTuple):
    q: Array       # (B, H, N, d)
    k: Array       # (B, H, N, d)
    v: Array       # (B, H, N, dv)
    runs: tuple    # of neighbouring sequences of one length: see `runs_of`
    heads: tuple   # the cache of attention in each of them


@operation(arrays="q k v")
def packed_attention(q, k, v, bounds):
    """`attention` in each of the sequences of a row on its own: no query sees a key of another sequence.

    q (B, H, N, d), k (B, H, N, d) and v (B, H, N, dv) give heads (B, H, N, dv). `bounds` is the tuple of ints
    (0, …, N) at which sequences begin and end; two that are equal leave an empty one between them. The scores are the
    blocks on the diagonal of an N×N matrix, and nothing else of it is computed. Dehghani et al. 2023, "Patch n' Pack:
    NaViT", section 2.1, "masked self attention".

    Raises ValueError for bounds that don't go from 0 to N in ascending order.
    """
    check_shapes(q, k, v)
    if q.ndim != 4 or q.shape != k.shape:
        raise ValueError(f"packed_attention: expected q and k (B, H, N, d), got {q.shape} and {k.shape}")
    B, H, N, _ = q.shape
    if not isinstance(bounds, tuple) or [*bounds] != sorted(bounds) or bounds[:1] + bounds[-1:] != (0, N):
        raise ValueError(f"packed_attention: expected bounds as a tuple of ints (0, …, {N}), each at least the one "
                         f"before, got {bounds!r}")  # fmt: skip
    dtype = np.result_type(q.dtype, k.dtype, v.dtype)
    y = array_module(q).empty((B, N, H, v.shape[3]), dtype).transpose(0, 2, 1, 3)  # as `merge_heads` reads it
    runs, caches = runs_of(bounds), []
    for run in runs:
        attend = attention if run[2] < MIN_TILED_TOKENS else tiled_attention
        heads, cache = attend(*(as_samples(x, run) for x in (q, k, v)))        # (B·count, H, length, dv)
        put(y, run, heads)
        caches.append(cache)
    return y, PackedAttentionCache(q, k, v, runs, tuple(caches))


@backward_of(packed_attention, result=heads_shape)
def packed_attention_backward(dy, cache):
    """`attention_backward` of each run of sequences. Returns (dq, dk, dv)."""
    gradients = empty_gradients(cache.q, cache.k, cache.v)
    for run, c_heads in zip(cache.runs, cache.heads, strict=True):
        for whole, part in zip(gradients, attention_backward(as_samples(dy, run), c_heads), strict=True):
            put(whole, run, part)
    return gradients


attention_backward.register_cache(PackedAttentionCache, packed_attention_backward)


@lru_cache(maxsize=256)
def runs_of(bounds):
    """((start, count, length), …): neighbouring sequences of the same length are one run, and empty ones left out."""
    runs = []
    for length, same in groupby(pairwise(bounds), key=lambda ends: ends[1] - ends[0]):
        starts = [start for start, _ in same]
        runs += [(starts[0], len(starts), length)] if length else []
    return tuple(runs)


def sequences(x, run):
    """The sequences of a run of x (B, H, N, d) as a view (B, count, H, length, d)."""
    start, count, length = run
    part = x[:, :, start : start + count * length]
    return part.reshape(*x.shape[:2], count, length, x.shape[3]).transpose(0, 2, 1, 3, 4)


def as_samples(x, run):
    """The sequences of a run of x as samples (B·count, H, length, d); where B is 1, a view."""
    found = sequences(x, run)
    return found.reshape(-1, *found.shape[2:])


def put(x, run, samples):
    """Write the sequences of a run where `as_samples` read them."""
    place = sequences(x, run)
    place[...] = samples.reshape(place.shape)
