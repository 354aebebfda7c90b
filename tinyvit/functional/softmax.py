"""The softmax over the last axis."""

from typing import NamedTuple

from tinyvit.arrays import Array, array_module
from tinyvit.dispatch import backward_of, operation


class SoftmaxCache(NamedTuple):
    probs: Array  # (..., N)


@operation
def softmax(x):
    """Turn every row of scores `x` (..., N) into probabilities pᵢ = exp(xᵢ) / Σⱼ exp(xⱼ).

    The row's maximum is subtracted first, which changes nothing but keeps exp from overflowing.
    Derived in notebooks/03.
    """
    xp = array_module(x)
    exps = xp.exp(x - x.real.max(-1, keepdims=True))
    probs = exps / exps.sum(-1, keepdims=True)
    return probs, SoftmaxCache(probs)


@backward_of(softmax, result=lambda cache: cache.probs.shape)
def softmax_backward(dy, cache):
    """The Jacobian is diag(p) − p pᵀ, so dx = p (dy − Σⱼ dyⱼ pⱼ)."""
    probs = cache.probs
    return probs * (dy - (dy * probs).sum(-1, keepdims=True))


def log_softmax(x):
    """log pᵢ = xᵢ − log Σⱼ exp(xⱼ) for every row of `x` (..., N), which neither overflows nor loses small pᵢ."""
    xp = array_module(x)
    shifted = x - x.real.max(-1, keepdims=True)
    return shifted - xp.log(xp.exp(shifted).sum(-1, keepdims=True))
