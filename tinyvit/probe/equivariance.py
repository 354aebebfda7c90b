"""Equivariance of features to shifts of the image."""

import numpy as np

from tinyvit.backend import to_numpy


def equivariance_error(f, images, shift, margin=0):
    """The equivariance error of `f`, for each image: (B,).

        error = ‖f(T x) − T f(x)‖ / ‖f(x)‖        T shifts by `shift` = (rows, columns) pixels

    f returns feature maps (B, C, H', W') for images x (B, C, H, W), whose sides are multiples of H' and W': T shifts
    maps by the same distance, in positions. Other results, such as logits (B, K), have no positions, and T leaves them
    unchanged: the error is then that of invariance. Shifts are cyclic. An exactly equivariant f has the error 0.

    margin   positions at each edge of the maps that don't count, because they depend on the image's border

    Raises ValueError for a shift that is no whole number of positions on the maps.
    """
    images = to_numpy(images)
    before, after = (to_numpy(f(x)) for x in (images, np.roll(images, shift, (2, 3))))
    moved = before
    if before.ndim == 4:
        sides = before.shape[2:]
        steps = [pixels // side for pixels, side in zip(images.shape[2:], sides)]
        if any(pixels % step for pixels, step in zip(shift, steps)):
            raise ValueError(
                f"expected a shift by multiples of {steps[0]}×{steps[1]} pixels, the distance between two positions of "
                f"{sides[0]}×{sides[1]} maps, got {tuple(shift)}"
            )
        moved = np.roll(before, [pixels // step for pixels, step in zip(shift, steps)], (2, 3))
        inside = (slice(None), slice(None), *(slice(margin, side - margin) for side in sides))
        before, moved, after = before[inside], moved[inside], after[inside]
    return norms(after - moved) / norms(before)


def norms(x):
    """The Euclidean norm of each sample of x (B, …)."""
    return np.linalg.norm(x.reshape(len(x), -1), axis=1)
