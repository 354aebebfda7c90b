"""Self-distillation: vectors of length 1, and a student that learns to agree with its teacher about other views."""

from numbers import Real
from typing import NamedTuple

import numpy as np

from tinyvit.arrays import Array, array_module
from tinyvit.dispatch import backward_of, operation
from tinyvit.functional.softmax import log_softmax

EPS = 1e-12  # shorter vectors are divided by this


class L2NormaliseCache(NamedTuple):
    y: Array     # (..., D)
    norm: Array  # (..., 1)  what was divided by


@operation
def l2_normalise(x):
    """y = x / ‖x‖₂ along the last axis of `x` (..., D), or x / 1e-12 where ‖x‖ is less.

    Of a weight's rows it is weight normalisation with all lengths 1: w = v / ‖v‖. Salimans & Kingma 2016, eq. 2.
    Derived in notebooks/16.
    """
    xp = array_module(x)
    norm = (x * x).sum(-1, keepdims=True) ** 0.5
    norm = xp.where(norm.real > EPS, norm, EPS).astype(x.dtype, copy=False)
    y = x / norm
    return y, L2NormaliseCache(y, norm)


@backward_of(l2_normalise, result=lambda cache: cache.y.shape)
def l2_normalise_backward(dy, cache):
    """dx = (dy − y Σ dy y) / ‖x‖: what would change the length is taken out. Where 1e-12 divides, dx = dy / 1e-12."""
    y, norm = cache
    along = array_module(dy).where(norm.real > EPS, (dy * y).sum(-1, keepdims=True), 0)
    return (dy - y * along) / norm


class DinoLossCache(NamedTuple):
    probs: Array    # (B, V, K)  the student's, at its temperature
    targets: Array  # (B, V, K)  for each view, the sum of the teacher's for all others
    temperature: float
    pairs: int      # of a teacher's view and another one, over all samples


@operation(any_dtype="teacher")
def dino_loss(logits, teacher, temperature=0.1):
    """How little a student's view of an image agrees with the teacher's of another one, a scalar:

        −1/n Σ pₜ · log softmax(zᵥ / τ)   over the samples and their pairs of views t ≠ v, n in number

    logits   (B, V, K) of the student for V views of each image, at least two
    teacher  (B, T, K) probabilities pₜ, of the first T of these views; constants, which get no gradient

    Caron et al. 2021, "Emerging properties in self-supervised vision transformers", eq. 3, as the mean over the pairs.
    Derived in notebooks/16.

    Raises ValueError for shapes that don't fit and for a temperature that isn't positive.
    """
    xp = array_module(logits)
    check_views(logits, teacher, temperature)
    (B, V, _), T = logits.shape, teacher.shape[1]
    dtype = logits.real.dtype if logits.dtype.kind in "fc" else np.dtype("float64")
    others = (xp.arange(V)[:, None] != xp.arange(T)).astype(dtype)
    targets = others @ teacher.astype(dtype, copy=False)                       # (B, V, K)
    log_q = log_softmax(logits * (1 / temperature))
    pairs = B * (V * T - T)
    # Where a target is 0 nothing is lost, however improbable the prototype: 0 · log 0 counts as 0.
    loss = (targets * xp.where(targets > 0, log_q, 0)).sum() * (-1 / pairs)
    return loss, DinoLossCache(xp.exp(log_q), targets, temperature, pairs)


@backward_of(dino_loss, result=lambda cache: ())
def dino_loss_backward(dy, cache):
    """dzᵥ = dy / (n τ) Σₜ (qᵥ − pₜ), over the teacher's views t ≠ v: belief less target, as of any cross-entropy."""
    probs, targets, temperature, pairs = cache
    return (probs * targets.sum(-1, keepdims=True) - targets) * (dy * (1 / (temperature * pairs)))


def check_views(logits, teacher, temperature):
    fits = logits.ndim == teacher.ndim == 3 and logits.size and teacher.dtype.kind == "f"
    if not fits or logits.shape[1] < 2 or not 1 <= teacher.shape[1] <= logits.shape[1] or (
        logits.shape[::2] != teacher.shape[::2]
    ):
        raise ValueError(
            "dino_loss: expected logits (B, V, K) of at least 2 views and the teacher's probabilities (B, T, K) of the "
            f"first T of them, floating-point numbers, got {logits.shape} and {teacher.dtype} {teacher.shape}"
        )
    if not isinstance(temperature, Real) or not 0 < temperature < float("inf"):
        raise ValueError(f"dino_loss: expected a temperature above 0, got {temperature!r}")
