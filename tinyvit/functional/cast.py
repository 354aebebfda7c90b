"""Arrays in another number format."""

from tinyvit.dispatch import operation


@operation(arrays="x out", in_place="out")
def cast(x, dtype, out=None):
    """`x` rounded to `dtype`, or x itself if that is its dtype; with `out`, an array of that dtype, written there.

    No pair of forward and backward: what was rounded passes its gradient on as it is, in the other format.

    Raises ValueError for an `out` of another shape or dtype.
    """
    if out is None:
        return x.astype(dtype, copy=False)
    if out.shape != x.shape or out.dtype != dtype:
        raise ValueError(f"cast: expected out as an array {dtype} {x.shape}, got {out.dtype} {out.shape}")
    out[...] = x
    return out
