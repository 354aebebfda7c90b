"""The additive bias of all attention kernels: it is read in place, and its gradient is summed in a fixed order."""

from math import prod

from tinyvit.backend import array_module
from tinyvit.kernels.cuda.cast import cast
from tinyvit.kernels.cuda.source import TYPED, Source, blocks, type_of

SOURCE = Source("attention_bias.cu", TYPED)
BLOCK = 256
WARPS = BLOCK // 32
ENOUGH = 1024  # blocks to keep a GPU busy


def strided_bias(bias):
    """A bias as the kernels take it: float32, with its four strides in numbers, 0 along what it is broadcast over."""
    if bias is None:
        return None, 0, 0, 0, 0
    bias = cast(bias, "float32")
    strides = [0 if side == 1 else stride // bias.itemsize for side, stride in zip(bias.shape, bias.strides)]
    return bias, *[0] * (4 - bias.ndim), *strides


def bias_gradient(dscores, shape, dtype="float32"):
    """dscores (B, H, Nq, Nk), whose rows start equally far apart, summed to the shape of a bias in float64."""
    sides = (1,) * (4 - len(shape)) + tuple(shape)
    if sides == dscores.shape:
        return cast(dscores, "float32").reshape(shape).astype(dtype, copy=False)
    *rows, columns = sides
    count, repeats = prod(rows) * blocks(columns, 32), prod(dscores.shape[:3]) // prod(rows)
    segments = max(1, min(ENOUGH // count, repeats // (8 * WARPS)))
    dbias = array_module(dscores).empty((segments, *sides), "float64")
    SOURCE.launch(
        "attention_dbias", segments * count, BLOCK, dscores, dbias, *dscores.shape,
        dscores.strides[2] // dscores.itemsize, *sides, segments, T=type_of(dscores),
    )  # fmt: skip
    return dbias.sum(0).astype(dtype).reshape(shape)
