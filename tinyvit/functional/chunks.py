"""Work cut into pieces that stay in a core's cache from the first pass over them to the last."""

CHUNK = 1 << 15  # float32 numbers: 128 KiB an array; shorter ones are dominated by calls, longer ones spill


def chunks(length, size=CHUNK):
    """Slices of `size` that cover `length`, the last one shorter."""
    return [slice(start, min(start + size, length)) for start in range(0, length, size)]
