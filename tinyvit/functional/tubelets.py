"""Videos into tubelets and back, and the frames of a sample as samples of their own."""

from numbers import Integral
from typing import NamedTuple

from tinyvit.dispatch import backward_of, operation


class TubeletsCache(NamedTuple):
    tubelet: tuple  # (frames, height, width) of a tubelet
    shape: tuple    # (B, C, T, H, W) of the videos


def as_triple(size):
    """A size (frames, height, width) as a tuple of three ints; ValueError for anything else."""
    triple = tuple(size) if isinstance(size, (tuple, list)) else (size,)
    if len(triple) != 3 or not all(isinstance(side, Integral) and side > 0 for side in triple):
        raise ValueError(f"expected a size as (frames, height, width), positive ints, got {size!r}")
    return tuple(map(int, triple))


def tubelet_grid(size, tubelet):
    """How many tubelets follow, stand below and stand beside each other; both sizes are (frames, height, width).

    Raises ValueError if the tubelets don't tile the video.
    """
    (T, H, W), (s, p, q) = size, tubelet
    if T % s or H % p or W % q:
        fit = f"{-(-T // s) * s}×{-(-H // p) * p}×{-(-W // q) * q}"
        raise ValueError(
            f"a video of {T}×{H}×{W} (frames, height, width) is not a multiple of the tubelet {s}×{p}×{q}; take one of "
            f"{fit}, or another tubelet"
        )
    return T // s, H // p, W // q


def tubelets_shape(cache):
    """The shape of the tubelets (B, t·h·w, C·S·P·Q) of videos."""
    (s, p, q), (B, C, T, H, W) = cache
    return B, T // s * (H // p) * (W // q), C * s * p * q


@operation(any_dtype="x")
def tubelets(x, tubelet):
    """Cut videos `x` (B, C, T, H, W) into tubelets (B, t·h·w, C·S·P·Q); `tubelet` is (S, P, Q).

    A tubelet is a patch of P×Q pixels through S frames. Those of the first S frames come first, row by row. Its numbers
    stand in the order C, S, P, Q, as in a 3-D convolution's weight: `linear` with that weight flattened is the
    convolution with stride (S, P, Q). Arnab et al. 2021, "ViViT: a video vision transformer", section 3.2. Derived in
    notebooks/19.
    """
    if x.ndim != 5:
        raise ValueError(f"tubelets: expected videos (B, C, T, H, W), got {x.shape}")
    B, C, T, H, W = x.shape
    s, p, q = as_triple(tubelet)
    t, h, w = tubelet_grid((T, H, W), (s, p, q))
    x = x.reshape(B, C, t, s, h, p, w, q).transpose(0, 2, 4, 6, 1, 3, 5, 7)   # (B, t, h, w, C, S, P, Q)
    return x.reshape(B, t * h * w, C * s * p * q), TubeletsCache((s, p, q), (B, C, T, H, W))


@backward_of(tubelets, result=tubelets_shape)
def tubelets_backward(dy, cache):
    """Every pixel went to one place, so the gradient goes back there: `from_tubelets`."""
    return from_tubelets.reference(dy, cache.tubelet, cache.shape[2:])[0]


@operation(any_dtype="x")
def from_tubelets(x, tubelet, size):
    """Put tubelets `x` (B, t·h·w, C·S·P·Q) together to videos (B, C, T, H, W): the inverse of `tubelets`.

    `size` is (T, H, W). See notebooks/19.
    """
    if x.ndim != 3:
        raise ValueError(f"from_tubelets: expected tubelets (B, N, C·S·P·Q), got {x.shape}")
    (B, N, D), (s, p, q), (T, H, W) = x.shape, as_triple(tubelet), as_triple(size)
    t, h, w = tubelet_grid((T, H, W), (s, p, q))
    if t * h * w != N or D % (s * p * q):
        raise ValueError(
            f"from_tubelets: {N} tubelets of {D} numbers don't make a video of {T}×{H}×{W} (frames, height, width) "
            f"with tubelets of {s}×{p}×{q}"
        )
    C = D // (s * p * q)
    x = x.reshape(B, t, h, w, C, s, p, q).transpose(0, 4, 1, 5, 2, 6, 3, 7)   # (B, C, t, S, h, P, w, Q)
    return x.reshape(B, C, T, H, W), TubeletsCache((s, p, q), (B, C, T, H, W))


@backward_of(from_tubelets, result=lambda cache: cache.shape)
def from_tubelets_backward(dy, cache):
    """Every number went to one pixel, so the gradient goes back there: `tubelets`."""
    return tubelets.reference(dy, cache.tubelet)[0]


class FramesCache(NamedTuple):
    frames: int
    shape: tuple  # of x


def split_shape(cache):
    t, (B, N, D) = cache
    return B * t, N // t, D


@operation(any_dtype="x")
def split_frames(x, frames):
    """The tokens `x` (B, t·n, D) of t frames as those of samples of their own, (B·t, n, D): attention then stays within
    a frame.

    Arnab et al. 2021, section 3.3, model 2. Derived in notebooks/19.
    """
    check_frames("split_frames", x, frames, 1)
    B, N, D = x.shape
    return x.reshape(B * frames, N // frames, D), FramesCache(frames, x.shape)


@backward_of(split_frames, result=split_shape)
def split_frames_backward(dy, cache):
    """The gradients go back to the sample that their frames are of: `join_frames`."""
    return dy.reshape(cache.shape)


def joined_shape(cache):
    t, (frames, n, D) = cache
    return frames // t, t * n, D


@operation(any_dtype="x")
def join_frames(x, frames):
    """The tokens `x` (B·t, n, D) of single frames as those of samples with t frames, (B, t·n, D): the inverse of
    `split_frames`.

    Arnab et al. 2021, section 3.3, model 2. Derived in notebooks/19.
    """
    check_frames("join_frames", x, frames, 0)
    M, n, D = x.shape
    return x.reshape(M // frames, frames * n, D), FramesCache(frames, x.shape)


@backward_of(join_frames, result=joined_shape)
def join_frames_backward(dy, cache):
    """The gradients go back to the frames: `split_frames`."""
    return dy.reshape(cache.shape)


def check_frames(name, x, frames, axis):
    """Raise ValueError unless `x` has three axes, and this one is a multiple of a number of frames."""
    whole = isinstance(frames, Integral) and not isinstance(frames, bool) and frames > 0
    if not whole or x.ndim != 3 or x.shape[axis] % frames:
        what = ("x (B·frames, n, D)", "x (B, frames·n, D)")[axis]
        raise ValueError(f"{name}: expected {what}, got {x.shape} and frames {frames!r}")
