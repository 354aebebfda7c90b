"""Adaptive layer norm: a condition scales and shifts tokens, and gates the branch that is added to them."""

from typing import NamedTuple

from tinyvit.arrays import Array
from tinyvit.dispatch import backward_of, operation


class ModulateCache(NamedTuple):
    x: Array     # (B, N, D)
    gain: Array  # (B, D)


@operation(arrays="x offset gain")
def modulate(x, offset, gain):
    """y = x (1 + gain) + offset, for tokens x (B, N, D) and an offset and a gain (B, D) for each sample.

    With both 0 the tokens stay as they are. Peebles & Xie 2023, "Scalable diffusion models with transformers", section
    3.2, where they are called shift and scale. Derived in notebooks/18.
    """
    check_per_sample("modulate", x, offset=offset, gain=gain)
    return x * (1 + gain[:, None]) + offset[:, None], ModulateCache(x, gain)


@backward_of(modulate, result=lambda cache: cache.x.shape)
def modulate_backward(dy, cache):
    """Returns (dx, doffset, dgain): all tokens of a sample have used its offset and its gain, so theirs are sums."""
    x, gain = cache
    return dy * (1 + gain[:, None]), dy.sum(1), (dy * x).sum(1)


class AddGatedCache(NamedTuple):
    branch: Array  # (B, N, D)
    gate: Array    # (B, D)


@operation(arrays="x branch gate")
def add_gated(x, branch, gate):
    """y = x + gate · branch, for tokens x and the branch (B, N, D) and a gate (B, D) for each sample.

    With the gate 0, where adaLN-Zero begins, the branch says nothing, and y = x. Peebles & Xie 2023, "Scalable
    diffusion models with transformers", section 3.2. Derived in notebooks/18.
    """
    check_per_sample("add_gated", x, gate=gate)
    if branch.shape != x.shape:
        raise ValueError(f"add_gated: expected a branch {x.shape}, like the tokens, got {branch.shape}")
    return x + gate[:, None] * branch, AddGatedCache(branch, gate)


@backward_of(add_gated, result=lambda cache: cache.branch.shape)
def add_gated_backward(dy, cache):
    """Returns (dx, dbranch, dgate) = (dy, gate · dy, Σ dy · branch over a sample's tokens)."""
    branch, gate = cache
    return dy, gate[:, None] * dy, (dy * branch).sum(1)


def check_per_sample(name, x, **vectors):
    """Raise ValueError unless `x` is (B, N, D) and all others are (B, D)."""
    expected = x.shape[::2]
    for argument, vector in vectors.items():
        if x.ndim != 3 or vector.shape != expected:
            raise ValueError(f"{name}: expected x (B, N, D) and {argument} (B, D), got {x.shape} and {vector.shape}")
