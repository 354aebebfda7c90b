import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds, tokens

from tinyvit import Key, gradcheck
from tinyvit import functional as F

RATES = st.floats(0.05, 0.9)
BOTH = pytest.mark.parametrize("op", [F.dropout, F.drop_path])


@BOTH
@given(x=tokens(), rate=RATES, seed=seeds())
def test_gradients_match_the_complex_step(op, x, rate, seed):
    report = gradcheck.check(op, op.backward, (x, rate, Key(seed)))
    assert report.max_error < 1e-10, report


@BOTH
@given(x=tokens(), rate=RATES, seed=seeds())
def test_what_is_kept_is_divided_by_the_keep_probability(op, x, rate, seed):
    y, _ = op(x, rate, Key(seed))
    kept = y != 0
    np.testing.assert_allclose(y[kept], x[kept] / (1 - rate), rtol=1e-14)


@given(x=tokens(), rate=RATES, seed=seeds())
def test_drop_path_drops_whole_samples(x, rate, seed):
    y, _ = F.drop_path(x, rate, Key(seed))
    for sample, original in zip(y, x):
        assert not sample.any() or np.array_equal(sample != 0, original != 0)


@BOTH
@given(seed=seeds(), rate=RATES, first=st.integers(0, 7))
def test_a_mask_does_not_depend_on_how_the_batch_was_split(op, seed, rate, first):
    x = np.ones((8, 3, 5))
    whole, _ = op(x, rate, Key(seed, path="blocks.0"))
    part, _ = op(x[first:], rate, Key(seed, path="blocks.0").skip(first))
    np.testing.assert_array_equal(part, whole[first:])


@BOTH
def test_seed_step_and_path_each_give_another_mask(op):
    x = np.ones((256, 2))
    masks = [op(x, 0.5, key)[0] for key in (Key(0), Key(1), Key(0, step=1), Key(0, path="a"), Key(0, path="b"))]
    for i, mask in enumerate(masks):
        assert all((mask != other).any() for other in masks[i + 1 :])


@BOTH
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_the_dropped_fraction_is_the_rate(op, rate):
    n = 40_000
    y, _ = op(np.ones((n, 1)), rate, Key(3))
    assert abs((y == 0).mean() - rate) < 5 * (rate * (1 - rate) / n) ** 0.5  # five σ


@BOTH
@given(x=tokens())
def test_nothing_is_dropped_without_a_key_or_at_rate_zero(op, x):
    for y, cache in (op(x, 0.5), op(x, 0.0, Key(0))):
        np.testing.assert_array_equal(y, x)
        np.testing.assert_array_equal(op.backward(x, cache), x)


@BOTH
def test_an_int_is_taken_as_the_seed_of_a_key(op):
    x = np.ones((64, 3))
    np.testing.assert_array_equal(op(x, 0.5, 7)[0], op(x, 0.5, Key(7))[0])


@BOTH
@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5])
def test_a_rate_outside_zero_to_one_is_refused(op, rate):
    with pytest.raises(ValueError, match=f"got {rate}"):
        op(np.ones((2, 3)), rate, Key(0))
