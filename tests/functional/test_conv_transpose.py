import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import SIZES, seeds

from tinyvit import functional as F

SHAPES = st.tuples(*[SIZES] * 7)  # B, C, H, W, C', P, Q


@given(shape=SHAPES, seed=seeds())
def test_it_is_the_transpose_of_a_convolution_with_the_same_weight(shape, seed):
    B, C, H, W, filters, p, q = shape
    generator = np.random.default_rng(seed)
    x, weight = generator.standard_normal((B, C, H, W)), generator.standard_normal((C, filters, p, q))
    y = generator.standard_normal((B, filters, H * p, W * q))
    there, _ = F.conv2d(y, weight, stride=(p, q))
    back, _ = F.conv_transpose2d(x, weight, stride=(p, q))
    assert (there * x).sum() == pytest.approx((back * y).sum(), rel=1e-9, abs=1e-9)


def test_what_does_not_fit_is_refused():
    x, weight = np.ones((2, 3, 4, 4)), np.ones((3, 5, 2, 2))
    with pytest.raises(ValueError, match=r"expected x \(B, C, H, W\) and weight \(C, C', P, Q\)"):
        F.conv_transpose2d(x, np.ones((4, 5, 2, 2)), stride=2)
    with pytest.raises(ValueError, match="expected the stride of the kernel, 2×2, got 1"):
        F.conv_transpose2d(x, weight)
    with pytest.raises(ValueError, match=r"expected bias \(5,\), got \(3,\)"):
        F.conv_transpose2d(x, weight, np.ones(3), stride=2)
