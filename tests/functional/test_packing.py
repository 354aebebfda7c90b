from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

from tinyvit import functional as F
from tinyvit.functional import packing

LENGTHS = st.lists(st.integers(0, 4), min_size=1, max_size=6)


def packed(lengths, B, seed):
    """Bounds of sequences with these lengths, and queries, keys and values (B, 3, N, 4) of all of them."""
    bounds = tuple(accumulate(lengths, initial=0))
    return bounds, np.random.default_rng(seed).standard_normal((3, B, 3, bounds[-1], 4))


@given(lengths=LENGTHS.filter(any), B=st.integers(1, 2), tiled_from=st.sampled_from([3, 1024]), seed=seeds())
def test_a_packed_row_is_attention_in_each_of_its_sequences_alone(lengths, B, tiled_from, seed):
    bounds, (q, k, v) = packed(lengths, B, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "MIN_TILED_TOKENS", tiled_from)
        y, cache = F.packed_attention(q, k, v, bounds)
    gradients = F.packed_attention_backward(y, cache)
    for start, stop in filter(lambda ends: ends[0] < ends[1], pairwise(bounds)):
        part = slice(start, stop)
        expected, c_part = F.attention(q[:, :, part], k[:, :, part], v[:, :, part])
        np.testing.assert_allclose(y[:, :, part], expected, rtol=1e-12, atol=1e-13)
        for got, want in zip(gradients, F.attention_backward(y[:, :, part], c_part), strict=True):
            np.testing.assert_allclose(got[:, :, part], want, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("bounds", [(), (0,), (1, 5), (0, 4), (0, 3, 2, 5), [0, 5], 5])
def test_bounds_that_do_not_fit_are_refused(bounds):
    with pytest.raises(ValueError, match=r"packed_attention: expected bounds as a tuple of ints \(0, …, 5\)"):
        F.packed_attention(*np.ones((3, 1, 2, 5, 4)), bounds)
    with pytest.raises(ValueError, match="packed_attention: expected q and k"):
        F.packed_attention(*np.ones((3, 2, 5, 4)), bounds)
