"""Arrays in another number format."""

from tinyvit.dispatch import operation


@operation
def cast(x, dtype, out=None):
    """`x` rounded to `dtype`, or x itself if that is its dtype; with `out`, an array of that dtype, written there.

    No pair of forward and backward: what was rounded passes its gradient on as it is, in the other format.
    """
    if out is None:
        return x.astype(dtype, copy=False)
    out[...] = x
    return out
