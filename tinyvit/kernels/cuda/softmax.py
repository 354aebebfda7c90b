"""Softmax in one pass forward and one back; also in place, and for rows with gaps, as attention has them."""

from itertools import pairwise

from tinyvit.functional.softmax import SoftmaxCache, softmax, softmax_backward
from tinyvit.kernels.cuda.source import (
    KINDS,
    PACKED,
    Source,
    blocks,
    contiguous,
    empty_like,
    pack_of,
    run_reference,
    type_of,
)

SHAPES = ((8, 16), (32, 8), (32, 32))  # threads that share a row, numbers that each holds
SINGLE = ((32, 32),)                   # the same for those that load one number at a time
BLOCK = 256
SHORT = Source(
    "softmax.cu",
    [
        {**packed, "SPAN": span, "LANE": lane}
        for packed in PACKED
        for span, lane in (SHAPES if packed["PACK"] > 1 else SINGLE)
    ],
)
LONG = Source("softmax_long.cu", PACKED)


def softmax_cuda(x):
    if not x.ndim:
        return softmax.reference(x)  # raises
    probs = softmax_rows(contiguous(x), empty_like(x))
    return probs, SoftmaxCache(probs)


def softmax_backward_cuda(dy, cache):
    probs = cache.probs
    if dy.dtype != probs.dtype:
        return run_reference(softmax_backward, dy, cache)
    return softmax_backward_rows(contiguous(dy), contiguous(probs), empty_like(dy))


def softmax_rows(x, out, scale=1.0, padded=False):
    """Write softmax(scale · x) over the last axis of `x` (..., N) to `out` (..., N), which may be `x`; returns `out`.

    Each row must be contiguous, and rows must start equally far apart; the distance may differ between `x` and
    `out`. `padded` says that all of them start on boundaries of 16 bytes, and that what lies between the
    end of a row and the next boundary belongs to it: it is filled with zeros in `out`.

    Raises ValueError for other layouts.
    """
    launch("forward", (x, out), scale, padded)
    return out


def softmax_backward_rows(dprobs, probs, out, scale=1.0, padded=False):
    """Write the gradient of x, from softmax(scale · x) and its gradient, to `out`, which may be either of these."""
    launch("backward", (dprobs, probs, out), scale, padded)
    return out


def launch(name, arrays, scale, padded):
    x, N = arrays[0], arrays[0].shape[-1]
    if not x.size:
        return
    strides = [stride_of_rows(array) for array in arrays]
    pack = min(pack_of(stride, array) for stride, array in zip(strides, arrays))
    if padded and pack == 1:
        raise ValueError(f"softmax: padded rows must start on boundaries of 16 bytes, got {arrays[0].strides}")
    pack = pack if padded or N % pack == 0 else 1
    arguments, constants = (*arrays, float(scale), x.size // N, N, *strides), {"T": type_of(x), "PACK": pack}
    for span, lane in SHAPES if pack > 1 else SINGLE:
        if span * lane >= N:
            grid = blocks(x.size // N, BLOCK // span)
            SHORT.launch(f"softmax_{name}", grid, BLOCK, *arguments, **constants, SPAN=span, LANE=lane)
            return
    LONG.launch(f"softmax_long_{name}", x.size // N, BLOCK, *arguments, **constants)


def stride_of_rows(x):
    """How many numbers after a row of x (..., N) the next one starts; 0 where there is no other."""
    if x.shape[-1] > 1 and x.strides[-1] != x.itemsize:
        raise ValueError(f"softmax: expected rows whose numbers follow each other, got {x.strides} for {x.shape}")
    axes = [(length, step) for length, step in zip(x.shape[:-1], x.strides[:-1]) if length > 1]
    for (_, step), (length, inner) in pairwise(axes):
        if step != length * inner:
            raise ValueError(f"softmax: expected rows that start equally far apart, got {x.strides} for {x.shape}")
    return axes[-1][1] // x.itemsize if axes else 0


for kind in KINDS:
    softmax.register(kind, softmax_cuda)
    softmax_backward.register(kind, softmax_backward_cuda)
