"""What the properties are tested on: arrays named by their shape, in every layout, never writeable."""

import numpy as np
from hypothesis import strategies as st

SIZES = st.integers(1, 4)
DTYPES = st.sampled_from(["float32", "float64"])
LAYOUTS = ("contiguous", "fortran", "strided", "reversed")


def seeds():
    return st.integers(0, 2**32 - 1)


def laid_out(x, layout):
    """The same numbers in another memory order, read-only."""
    if layout == "fortran":
        x = np.asfortranarray(x)
    elif layout == "strided":
        x = np.repeat(x, 2, axis=-1)[..., ::2]
    elif layout == "reversed":
        x = np.ascontiguousarray(x[::-1])[::-1]
    x.flags.writeable = False
    return x


@st.composite
def normals(draw, *shapes, dtype=None, scale=1.0):
    """A tuple of arrays N(0, scale²) of the given shapes, in one dtype and in layouts of their own."""
    generator = np.random.default_rng(draw(seeds()))
    dtype = draw(DTYPES) if dtype is None else dtype
    return tuple(
        laid_out(scale * generator.standard_normal(shape).astype(dtype), draw(st.sampled_from(LAYOUTS)))
        for shape in shapes
    )


@st.composite
def tokens(draw, min_width=1, max_width=7, dtype="float64"):
    """Tokens (B, N, D), one sample and one token included."""
    shape = draw(SIZES), draw(st.integers(1, 5)), draw(st.integers(min_width, max_width))
    (x,) = draw(normals(shape, dtype=dtype))
    return x


@st.composite
def heads(draw, dtype="float64"):
    """Queries (B, H, Nq, d), keys (B, H, Nk, d) and values (B, H, Nk, dv)."""
    B, H, Nq, Nk, d, dv = (draw(SIZES) for _ in range(6))
    return draw(normals((B, H, Nq, d), (B, H, Nk, d), (B, H, Nk, dv), dtype=dtype))


@st.composite
def images_and_patch(draw, dtype="float64"):
    """Images (B, C, H, W), and a patch (P, Q) that tiles them."""
    B, C, rows, columns, p, q = (draw(st.integers(1, 3)) for _ in range(6))
    (x,) = draw(normals((B, C, rows * p, columns * q), dtype=dtype))
    return x, (p, q)


@st.composite
def classified(draw, dtype="float64", scale=1.0):
    """Logits (B, K) with labels (B,)."""
    B, K = draw(SIZES), draw(st.integers(1, 6))
    (logits,) = draw(normals((B, K), dtype=dtype, scale=scale))
    labels = np.random.default_rng(draw(seeds())).integers(0, K, B)
    return logits, labels
