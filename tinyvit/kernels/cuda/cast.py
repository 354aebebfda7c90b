"""From float32 to bfloat16 and float16, and back."""

from tinyvit.arrays import low_precision_dtype
from tinyvit.functional import cast as operation
from tinyvit.kernels.cuda.source import KINDS, TYPES, Source, blocks, contiguous, empty_like, pack_of, type_of

PAIRS = [("float", low) for low in TYPES.values() if low != "float"]
SOURCE = Source(
    "cast.cu",
    [{"FROM": a, "TO": b, "PACK": pack} for pair in PAIRS for a, b in (pair, pair[::-1]) for pack in (1, 4)],
)
BLOCK = 256


def cast(x, dtype, out=None):
    """`x` in another of float32, bfloat16 and float16; an array of that dtype comes back as it is.

    Rounds to the nearest number, ties to even; numbers that are too large
    become infinite, and NaN stays NaN. The result is written into `out` (contiguous, of the same shape), if there is
    one. Raises ValueError for an `out` that doesn't fit, and between bfloat16 and float16, which takes two casts.
    """
    dtype = low_precision_dtype(dtype)
    if out is not None and not (out.shape == x.shape and out.dtype == dtype and out.flags.c_contiguous):
        raise ValueError(f"cast: expected a contiguous {dtype} array {x.shape}, got {out.dtype} {out.shape}")
    if x.dtype == dtype:
        if out is None:
            return x
        out[...] = x
        return out
    if "float32" not in (x.dtype, dtype):
        raise ValueError(f"cast: can't go from {x.dtype} to {dtype}; one of the two must be float32")
    x, y = contiguous(x), empty_like(x, dtype) if out is None else out
    pack = pack_of(x.size, *((x, y) if x.dtype == "float32" else (y, x)))
    SOURCE.launch("cast", blocks(x.size, pack * BLOCK), BLOCK, x, y, x.size, FROM=type_of(x), TO=type_of(y), PACK=pack)
    return y


def cast_cuda(x, dtype, out=None):
    return (cast if str(low_precision_dtype(dtype)) in TYPES else operation.reference)(x, dtype, out)


for kind in KINDS:
    operation.register(kind, cast_cuda)
