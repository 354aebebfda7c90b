"""Arrays in another number format."""

from tinyvit.dispatch import operation


@operation
def cast(x, dtype, out=None):
    """`x` rounded to `dtype`, or x itself if that is its dtype; with `out`, an array of that dtype, written there.

    No pair of forward and backward: what was rounded passes its gradient on as it is, in the other format.

    Raises ValueError for an `out` of another shape or dtype.
    """
    if out is None:
        return x.astype(dtype, copy=False)
    if getattr(out, "shape", None) != x.shape or out.dtype != dtype:
        got = f"{out.dtype} {out.shape}" if hasattr(out, "dtype") else type(out).__name__
        raise ValueError(f"cast: expected out as an array {dtype} {x.shape}, got {got}")
    out[...] = x
    return out
