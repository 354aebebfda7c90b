import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import SIZES, normals, seeds

from tinyvit import functional as F
from tinyvit import gradcheck

PAIRS = st.tuples(SIZES, SIZES, SIZES, SIZES).flatmap(lambda s: normals((s[0], s[1], s[3]), (s[0], s[2], s[3])))


@given(drawn=PAIRS, seed=seeds())
def test_gradients_match_the_complex_step(drawn, seed):
    drawn = [x.astype("float64") for x in drawn]
    report = gradcheck.check(F.dot_products, F.dot_products_backward, drawn, directions=2, seed=seed)
    assert report.max_error < 1e-10, report


@given(PAIRS)
def test_each_sample_has_its_own_products(drawn):
    x, y = (array.astype("float64") for array in drawn)
    np.testing.assert_allclose(F.dot_products(x, y)[0], np.einsum("bnd,bkd->bnk", x, y), rtol=1e-12, atol=1e-12)


def test_what_does_not_fit_is_refused():
    for x, y in [((2, 3, 4), (2, 3, 5)), ((2, 3, 4), (1, 3, 4)), ((3, 4), (3, 4))]:
        with pytest.raises(ValueError, match=r"expected q \(B, N, D\) and k \(B, K, D\)"):
            F.dot_products(np.ones(x), np.ones(y))
