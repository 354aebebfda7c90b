import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbers_of import DTYPE, numbers, to

from tinyvit.kernels.cuda.cast import cast

LOW = ("bfloat16", "float16")
BITS = st.lists(st.integers(0, 2**32 - 1), max_size=40)
# Halfway between two neighbours, just beside it, at the largest and smallest numbers, and NaN.
CORNERS = np.uint32([
    0, 0x80000000, 0x3F808000, 0x3F808001, 0x3F818000, 0x3F817FFF, 0x7F7FFFFF, 0x7F7F7FFF, 0x7F7F8000, 0x00000001,
    0x007FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0xFFFFFFFF, 0x3F801000, 0x3F803000, 0x477FE000,
    0x477FEFFF, 0x477FF000, 0x33000000, 0x33000001, 0x337FFFFF, 0x387FC000, 0x387FE000, 0x387FF000, 0x00008000,
    0x00018000,
])  # fmt: skip


def same(got, expected):
    """Equal bit for bit, except that any NaN equals any other."""
    got, size = got.get(), f"uint{expected.itemsize * 8}"
    nan = np.isnan(expected.astype("float64"))
    np.testing.assert_array_equal(np.isnan(got.astype("float64")), nan)
    np.testing.assert_array_equal(got[~nan].view(size), expected[~nan].view(size))


@pytest.mark.parametrize("dtype", LOW)
@given(bits=BITS)
def test_rounding_is_that_of_ml_dtypes_bit_for_bit(cupy, dtype, bits):
    x = np.concatenate([np.array(bits, "uint32"), CORNERS]).view("float32")
    with np.errstate(over="ignore", invalid="ignore"):
        expected = x.astype(DTYPE[dtype])
    got = cast(cupy.asarray(x), dtype)
    assert got.dtype == DTYPE[dtype]
    same(got, expected)


@pytest.mark.parametrize("dtype", LOW)
def test_every_number_of_low_precision_is_a_float32_and_comes_back(cupy, dtype):
    every = np.arange(1 << 16, dtype="uint16").view(DTYPE[dtype])
    with np.errstate(invalid="ignore"):
        up = cast(cupy.asarray(every), "float32")
        same(up, every.astype("float32"))
        same(cast(up, dtype), every)


def test_arrays_that_cannot_be_cast_are_refused(cupy):
    x, out = to(cupy, numbers(4, 6)), cupy.empty((6, 4), "float16")
    assert cast(x.T, "float16", out=out) is out and cast(x, "float32") is x  # of any strides, and nothing to do
    same(out, x.get().T.astype("float16"))
    for out in (cupy.empty((6, 4), "float16"), cupy.empty((4, 6), "float32"), cupy.empty((4, 12), "float16")[:, ::2]):
        with pytest.raises(ValueError, match=r"cast: expected a contiguous float16 array \(4, 6\), got"):
            cast(x, "float16", out=out)
    with pytest.raises(ValueError, match="can't go from bfloat16 to float16; one of the two must be float32"):
        cast(cast(x, "bfloat16"), "float16")
