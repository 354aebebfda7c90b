"""The loss of a classifier: in float32 whatever the logits' dtype, and never read by the host."""

from typing import Any, NamedTuple

import numpy as np

from tinyvit.arrays import Array, array_module
from tinyvit.functional.cross_entropy import are_labels, cross_entropy, cross_entropy_backward, smoothed_targets
from tinyvit.kernels.cuda.flat import total_of
from tinyvit.kernels.cuda.source import KINDS, TYPED, TYPES, Source, blocks, contiguous

BLOCK, WARPS = 256, 8
SOURCE = Source("cross_entropy.cu", TYPED)


class CudaCrossEntropyCache(NamedTuple):
    probs: Array            # (B, K) float32: p − t has few digits left where p is near 1
    labels: Array | None    # (B,) int64
    given: Array | None     # (B, K) float32: probabilities in place of labels
    label_smoothing: float
    dtype: Any              # of the logits

    @property
    def targets(self):
        """The smoothed target probabilities (B, K), recomputed."""
        return smoothed_targets(self.given if self.labels is None else self.labels, self.probs, self.label_smoothing)


def cross_entropy_cuda(logits, targets, label_smoothing=0.0):
    xp = array_module(logits)
    labels = are_labels(targets, logits, label_smoothing)
    targets, logits = contiguous(targets.astype("int64" if labels else "float32", copy=False)), contiguous(logits)
    cache = CudaCrossEntropyCache(
        xp.empty(logits.shape, "float32"), targets if labels else None, None if labels else targets,
        float(label_smoothing), logits.dtype,
    )  # fmt: skip
    B, K = logits.shape
    losses = xp.empty(B, "float32")
    launch("cross_entropy_forward", cache, logits, *cache[1:4], cache.probs, losses, B, K)
    return total_of(losses), cache


def cross_entropy_backward_cuda(dy, cache):
    """`dy` is a number or, as for scaled losses, a 0-d array on the device, which the host doesn't wait for."""
    number, scale = (1.0, dy) if array_module(dy) is not np else (float(dy), None)
    if scale is not None and scale.dtype != "float32":
        scale = scale.astype("float32")
    dlogits = array_module(cache.probs).empty(cache.probs.shape, cache.dtype)
    launch("cross_entropy_backward", cache, cache.probs, *cache[1:4], scale, number, dlogits, *dlogits.shape)
    return dlogits


def launch(name, cache, *arguments):
    SOURCE.launch(name, blocks(len(cache.probs), WARPS), BLOCK, *arguments, T=TYPES[str(cache.dtype)])


for kind in KINDS:
    cross_entropy.register(kind, cross_entropy_cuda)
cross_entropy_backward.register_cache(CudaCrossEntropyCache, cross_entropy_backward_cuda)
