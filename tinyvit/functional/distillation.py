"""The loss of a student that learns from a teacher's probabilities."""

from numbers import Real
from typing import NamedTuple

import numpy as np

from tinyvit.arrays import Array, array_module
from tinyvit.dispatch import backward_of, operation
from tinyvit.functional.softmax import log_softmax


class DistillationCache(NamedTuple):
    probs: Array    # (B, K)  the student's at the temperature
    targets: Array  # (B, K)  the teacher's
    temperature: float


@operation(any_dtype="teacher")
def distillation(logits, teacher, temperature=1.0):
    """The divergence of the student's probabilities from the teacher's, both at temperature τ, a scalar:

        τ² / (B K) · Σ p log(p / q)   with p = softmax(teacher / τ) and q = softmax(logits / τ)

    logits and teacher are logits (B, K); the teacher's are constants and get no gradient. τ² keeps the gradient's size
    about the same for all temperatures (Hinton et al. 2015, "Distilling the knowledge in a neural network", section 2).
    The mean is over the B K numbers, as in the code of Touvron et al. 2021. Derived in notebooks/12.

    Raises ValueError for shapes that don't fit and for a temperature that isn't positive.
    """
    xp = array_module(logits)
    check_logits(logits, teacher, temperature)
    dtype = logits.real.dtype if logits.dtype.kind in "fc" else np.dtype("float64")
    log_q = log_softmax(logits * (1 / temperature))
    log_p = log_softmax(teacher.astype(dtype, copy=False) * (1 / temperature))
    p = xp.exp(log_p)
    # Where p is 0 nothing is lost, however improbable the class: 0 · log 0 counts as 0.
    loss = (p * xp.where(p > 0, log_p - log_q, 0)).sum() * (temperature**2 / logits.size)
    return loss, DistillationCache(xp.exp(log_q), p, temperature)


@backward_of(distillation, result=lambda cache: ())
def distillation_backward(dy, cache):
    """dlogits = dy τ (q − p) / (B K): what the student believes less what the teacher does."""
    probs, targets, temperature = cache
    return (probs - targets) * (dy * (temperature / probs.size))


def check_logits(logits, teacher, temperature):
    if logits.ndim != 2 or not logits.size or teacher.shape != logits.shape or teacher.dtype.kind != "f":
        raise ValueError(
            "distillation: expected logits (B, K) and a teacher's logits of the same shape, floating-point numbers, "
            f"got {logits.shape} and {teacher.dtype} {teacher.shape}"
        )
    if not isinstance(temperature, Real) or not 0 < temperature < float("inf"):
        raise ValueError(f"distillation: expected a temperature above 0, got {temperature!r}")
