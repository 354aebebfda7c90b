"""Images into patches and back."""

from numbers import Integral
from typing import NamedTuple

from tinyvit.dispatch import backward_of, operation


class PatchCache(NamedTuple):
    patch: tuple  # (height, width) of a patch
    shape: tuple  # (B, C, H, W) of the images


class UnpatchifyCache(NamedTuple):
    patch: tuple  # (height, width) of a patch
    shape: tuple  # (B, C, H, W) of the images


def as_pair(size):
    """An int as (size, size), a pair as a tuple of two ints: sizes are (height, width) everywhere."""
    pair = tuple(size) if isinstance(size, (tuple, list)) else (size, size)
    if len(pair) != 2 or not all(isinstance(side, Integral) and side > 0 for side in pair):
        raise ValueError(f"expected a size as a positive int or (height, width), got {size!r}")
    return int(pair[0]), int(pair[1])


def grid_of(size, patch):
    """How many patches stand below and beside each other in an image; both sizes are (height, width).

    Raises ValueError if the patches don't tile the image.
    """
    (height, width), (p, q) = size, patch
    if height % p or width % q:
        fit = f"{-(-height // p) * p}×{-(-width // q) * q}"
        raise ValueError(
            f"image size {height}×{width} is not a multiple of the patch size {p}×{q}; pad or resize to {fit}"
        )
    return height // p, width // q


def patches_shape(cache):
    """The shape of the patches (B, N, C·P·Q) of images."""
    (p, q), (B, C, H, W) = cache
    return B, H // p * (W // q), C * p * q


@operation(any_dtype="x")
def patchify(x, patch):
    """Cut images `x` (B, C, H, W) into patches (B, N, C·P·Q), row by row; `patch` is P or (P, Q).

    A patch's numbers stand in the order C, P, Q, as in a convolution's weight: `linear` with that weight
    flattened is the convolution with stride (P, Q). Dosovitskiy et al. 2021, section 3.1. See notebooks/01.
    """
    if x.ndim != 4:
        raise ValueError(f"patchify: expected images (B, C, H, W), got {x.shape}")
    B, C, H, W = x.shape
    p, q = as_pair(patch)
    rows, columns = grid_of((H, W), (p, q))
    x = x.reshape(B, C, rows, p, columns, q).transpose(0, 2, 4, 1, 3, 5)      # (B, rows, columns, C, P, Q)
    return x.reshape(B, rows * columns, C * p * q), PatchCache((p, q), (B, C, H, W))


@backward_of(patchify, result=patches_shape)
def patchify_backward(dy, cache):
    """Every pixel went to one place, so the gradient goes back there: `unpatchify`."""
    return unpatchify.reference(dy, cache.patch, cache.shape[2:])[0]


@operation(any_dtype="x")
def unpatchify(x, patch, img_size=None):
    """Put patches `x` (B, N, C·P·Q) together to images (B, C, H, W): the inverse of `patchify`.

    `img_size` is H or (H, W); without it the grid of patches is taken to be a square.
    """
    if x.ndim != 3:
        raise ValueError(f"unpatchify: expected patches (B, N, C·P·Q), got {x.shape}")
    B, N, D = x.shape
    p, q = as_pair(patch)
    side = round(N**0.5)
    H, W = (side * p, side * q) if img_size is None else as_pair(img_size)
    rows, columns = grid_of((H, W), (p, q))
    if rows * columns != N or D % (p * q):
        raise ValueError(
            f"unpatchify: {N} patches of {D} numbers don't make a {H}×{W} image of {p}×{q} patches"
            + ("; give img_size, the grid is not a square" if img_size is None and side * side != N else "")
        )
    C = D // (p * q)
    x = x.reshape(B, rows, columns, C, p, q).transpose(0, 3, 1, 4, 2, 5)      # (B, C, rows, P, columns, Q)
    return x.reshape(B, C, H, W), UnpatchifyCache((p, q), (B, C, H, W))


@backward_of(unpatchify, result=lambda cache: cache.shape)
def unpatchify_backward(dy, cache):
    """Every number went to one pixel, so the gradient goes back there: `patchify`."""
    return patchify.reference(dy, cache.patch)[0]
