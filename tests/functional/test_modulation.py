"""Scale, shift and gate: the operations by which a condition changes tokens."""

import numpy as np
import pytest
from hypothesis import given
from strategies import seeds, tokens

from tinyvit import functional as F
from tinyvit import gradcheck


def vectors(x, seed, count):
    return np.random.default_rng(seed).standard_normal((count, len(x), x.shape[2]))


@given(x=tokens(), seed=seeds())
def test_gradients_match_the_complex_step(x, seed):
    offset, gain = vectors(x, seed, 2)
    branch = np.random.default_rng(seed).standard_normal(x.shape)
    for operation, inputs in ((F.modulate, (x, offset, gain)), (F.add_gated, (x, branch, gain))):
        report = gradcheck.check(operation, operation.backward, inputs, seed=seed)
        assert report.max_error < 1e-10, report


@given(x=tokens(), seed=seeds())
def test_a_condition_of_zeros_changes_nothing(x, seed):
    nothing, branch = np.zeros((len(x), x.shape[2])), np.random.default_rng(seed).standard_normal(x.shape)
    np.testing.assert_array_equal(F.modulate(x, nothing, nothing)[0], x)
    y, cache = F.add_gated(x, branch, nothing)
    np.testing.assert_array_equal(y, x)
    dx, dbranch, _ = F.add_gated_backward(branch, cache)
    np.testing.assert_array_equal(dx, branch)  # adaLN-Zero: at the start only the gates learn
    assert not dbranch.any()


@given(x=tokens(), seed=seeds())
def test_each_sample_has_a_condition_of_its_own(x, seed):
    offset, gain = vectors(x, seed, 2)
    y, _ = F.modulate(x, offset, gain)
    for b in range(len(x)):
        np.testing.assert_array_equal(F.modulate(x[b : b + 1], offset[b : b + 1], gain[b : b + 1])[0], y[b : b + 1])
        np.testing.assert_allclose(y[b], x[b] * (1 + gain[b]) + offset[b], rtol=1e-14)


x, vector = np.ones((2, 3, 4)), np.ones((2, 4))


@pytest.mark.parametrize("operation, inputs, message", [
    (F.modulate, (x, vector, np.ones((3, 4))), r"modulate: .*gain \(B, D\), got \(2, 3, 4\) and \(3, 4\)"),
    (F.modulate, (x, np.ones(4), vector), r"modulate: .*offset \(B, D\), got \(2, 3, 4\) and \(4,\)"),
    (F.modulate, (x[0], vector, vector), r"got \(3, 4\) and \(2, 4\)"),
    (F.add_gated, (x, x, np.ones((2, 3))), r"add_gated: .*gate \(B, D\), got \(2, 3, 4\) and \(2, 3\)"),
    (F.add_gated, (x, x[:, :2], vector), r"add_gated: expected a branch \(2, 3, 4\).*got \(2, 2, 4\)"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(operation, inputs, message):
    with pytest.raises(ValueError, match=message):
        operation(*inputs)
