"""Windows that slide over images: where a convolution or a pooling reads them."""

from numbers import Integral
from typing import NamedTuple

from tinyvit.arrays import array_module


class Windows(NamedTuple):
    """The windows of a kernel on padded images; all sizes are (height, width)."""

    image: tuple    # (H, W), before padding
    kernel: tuple   # (P, Q)
    stride: tuple   # from a window to the next
    padding: tuple  # rows above and below, columns left and right

    @property
    def padded(self):
        return tuple(side + 2 * margin for side, margin in zip(self.image, self.padding))

    @property
    def grid(self):
        """How many windows there are below and beside each other."""
        sides = zip(self.padded, self.kernel, self.stride)
        return tuple((side - kernel) // stride + 1 for side, kernel, stride in sides)

    def offsets(self):
        """The places (row, column) in a window, row by row."""
        return [(row, column) for row in range(self.kernel[0]) for column in range(self.kernel[1])]

    def pad(self, x, value=0.0):
        """Images x (..., H, W) with `value` around them."""
        if self.padding == (0, 0):
            return x
        padded = array_module(x).zeros((*x.shape[:-2], *self.padded), x.dtype)
        if value:
            padded += value
        self.crop(padded)[...] = x
        return padded

    def crop(self, padded):
        """Padded images without their padding, as a view."""
        (top, left), (H, W) = self.padding, self.image
        return padded[..., top : top + H, left : left + W]

    def at(self, padded, row, column):
        """The pixel at a place in each window of padded images (..., H + 2p, W + 2q), as a view (..., H', W')."""
        (rows, columns), (down, right) = self.grid, self.stride
        return padded[..., row : row + rows * down : down, column : column + columns * right : right][
            ..., :rows, :columns
        ]


def windows_on(name, x, kernel, stride, padding):
    """The `Windows` of an operation on images x (B, C, H, W); sizes are ints or pairs.

    Raises ValueError for other arrays and sizes, and for a kernel larger than the padded images.
    """
    if x.ndim != 4:
        raise ValueError(f"{name}: expected images x (B, C, H, W), got {x.shape}")
    sizes = (("kernel", kernel, 1), ("stride", stride, 1), ("padding", padding, 0))
    windows = Windows(x.shape[2:], *(as_sides(name, *size) for size in sizes))
    if any(kernel > side for kernel, side in zip(windows.kernel, windows.padded)):
        (p, q), (height, width) = windows.kernel, windows.padded
        raise ValueError(f"{name}: expected a kernel that fits the padded images {height}×{width}, got {p}×{q}")
    return windows


def is_int(value):
    """Whether this is a whole number, and not True or False."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def as_sides(name, what, size, least):
    """An int as (size, size), a pair as a tuple of two ints."""
    pair = tuple(size) if isinstance(size, (tuple, list)) else (size, size)
    if len(pair) != 2 or not all(is_int(side) and side >= least for side in pair):
        raise ValueError(f"{name}: expected {what} as an int of at least {least} or (height, width), got {size!r}")
    return int(pair[0]), int(pair[1])
