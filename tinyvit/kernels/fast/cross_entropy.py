"""The loss of a classifier, row by row."""

from typing import NamedTuple

import numpy as np

from tinyvit.arrays import Array, as_loss
from tinyvit.functional.cross_entropy import (
    cross_entropy,
    cross_entropy_backward,
    smoothed_targets,
)
from tinyvit.kernels.fast.compiled import ANY_ORDER, FLOAT, INPUT, OUTPUT, as_contiguous, jit
from tinyvit.kernels.fast.exp import F
from tinyvit.kernels.fast.softmax import softmax_row

ZERO = F(0.0)


class FastCrossEntropyCache(NamedTuple):
    """As `CrossEntropyCache`; its type leads to the kernel, as the gradient of a loss is a number of no dtype."""

    probs: Array    # (B, K)
    targets: Array  # (B, K)  the smoothed target probabilities


@jit(INPUT("B K"), INPUT("B K"), OUTPUT("B K"), OUTPUT("B"))
def losses_and_probs(logits, targets, probs, losses):
    """probs holds the logits when this begins."""
    B, K = logits.shape
    for b in range(B):
        largest, total = softmax_row(probs[b])
        log_sum, loss = np.log(total), ZERO
        for k in range(K):
            # In this order, as log Σ may be too small to be added to the largest logit. Where a target is 0 nothing is
            # lost, however improbable the class.
            if targets[b, k] != ZERO:
                loss += targets[b, k] * (log_sum + (largest - logits[b, k]))
        losses[b] = loss


@jit(INPUT("B K"), INPUT("B K"), FLOAT, OUTPUT("B K"), math=ANY_ORDER)
def dlogits_rows(probs, targets, dy, dlogits):
    B, K = probs.shape
    for b in range(B):
        total = ZERO
        for k in range(K):
            total += targets[b, k]
        for k in range(K):
            dlogits[b, k] = (probs[b, k] * total - targets[b, k]) * dy


def cross_entropy_fast(logits, targets, label_smoothing=0.0):
    if not logits.size:
        return cross_entropy.reference(logits, targets, label_smoothing)
    targets = smoothed_targets(targets, logits, label_smoothing)
    logits, targets = as_contiguous(logits), as_contiguous(targets)
    probs, losses = logits.copy(), np.empty(len(logits), "float32")
    losses_and_probs(logits, targets, probs, losses)
    return as_loss(losses.sum() * F(1 / len(logits))), FastCrossEntropyCache(probs, targets)


def cross_entropy_backward_fast(dy, cache):
    probs, targets = cache
    if not isinstance(dy, (int, float)) and (np.ndim(dy) or np.asarray(dy).dtype != "float32"):
        return cross_entropy_backward.reference(dy, cache)
    dlogits = np.empty_like(probs)
    dlogits_rows(probs, targets, F(float(dy) / len(probs)), dlogits)
    return dlogits


cross_entropy.register(("numpy", "float32"), cross_entropy_fast, "fast")
cross_entropy_backward.register_cache(FastCrossEntropyCache, cross_entropy_backward_fast)
