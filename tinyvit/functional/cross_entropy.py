"""The loss of a classifier."""

from typing import NamedTuple

import numpy as np

from tinyvit.arrays import Array, array_module, as_loss
from tinyvit.dispatch import backward_of, operation


class CrossEntropyCache(NamedTuple):
    probs: Array    # (B, K)
    targets: Array  # (B, K)  the smoothed target probabilities


@operation(any_dtype="targets")
def cross_entropy(logits, targets, label_smoothing=0.0):
    """The mean over samples of −Σₖ tₖ log softmax(logits)ₖ, a scalar of the logits' dtype.

    logits (B, K). targets: ints (B,), or probabilities (B, K), which are constants and get no gradient.
    With `label_smoothing` ε, t = (1 − ε) targets + ε/K (Szegedy et al. 2016, section 7).
    log softmax is taken as (x − max) − log Σ exp(x − max), which neither overflows nor loses small numbers.
    Derived in notebooks/06.

    Raises ValueError for shapes that don't fit, and for labels out of range if they are in host memory
    (on a GPU that would mean waiting for it; there, check labels when they are loaded).
    """
    xp = array_module(logits)
    targets = smoothed_targets(targets, logits, label_smoothing)
    shifted = logits - logits.real.max(-1, keepdims=True)
    log_probs = shifted - xp.log(xp.exp(shifted).sum(-1, keepdims=True))
    # Where a target is 0 nothing is lost, however improbable the class: 0 · log 0 counts as 0.
    loss = -(targets * xp.where(targets != 0, log_probs, 0)).sum() * (1 / logits.shape[0])
    return as_loss(loss), CrossEntropyCache(xp.exp(log_probs), targets)


@backward_of(cross_entropy, result=lambda cache: ())
def cross_entropy_backward(dy, cache):
    """dlogits = dy (p Σₖtₖ − t) / B: for targets that sum to 1, what was predicted less what was wanted."""
    probs, targets = cache
    return (probs * targets.sum(-1, keepdims=True) - targets) * (dy * (1 / probs.shape[0]))


def smoothed_targets(targets, logits, label_smoothing):
    """Targets as probabilities (B, K) of the logits' real dtype, smoothed."""
    labels = are_labels(targets, logits, label_smoothing)
    xp, K, dtype = array_module(logits), logits.shape[1], logits.real.dtype
    dtype = "float64" if dtype.kind in "biu" else dtype  # whole logits have the loss of floating-point ones
    targets = (targets[:, None] == xp.arange(K)).astype(dtype) if labels else targets.astype(dtype, copy=False)
    if label_smoothing:
        targets = targets * (1 - label_smoothing) + label_smoothing / K
    return targets


def are_labels(targets, logits, label_smoothing):
    """Whether targets are labels (B,), rather than probabilities (B, K); ValueError otherwise."""
    if logits.ndim != 2 or logits.shape[0] == 0:
        raise ValueError(f"cross_entropy: expected logits (B, K) of at least one sample, got {logits.shape}")
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"cross_entropy: label_smoothing must be from 0 to 1, got {label_smoothing}")
    B, K = logits.shape
    if targets.dtype.kind in "iu" and targets.shape == (B,):
        if array_module(logits) is np and (targets.min() < 0 or targets.max() >= K):
            raise ValueError(
                f"cross_entropy: expected labels from 0 to {K - 1}, got {targets.min()} to {targets.max()}"
            )
        return True
    if targets.dtype.kind == "f" and targets.shape == (B, K):
        return False
    raise ValueError(
        f"cross_entropy: expected targets as ints {(B,)} or probabilities {(B, K)}, "
        f"got {targets.dtype} {targets.shape}"
    )
