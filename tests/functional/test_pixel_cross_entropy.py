import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import SIZES, seeds

from tinyvit import functional as F


@st.composite
def labelled(draw):
    """Logits (B, K, H, W), and labels (B, H, W) of which some are ignored."""
    B, K, H, W = (draw(SIZES) for _ in range(4))
    generator = np.random.default_rng(draw(seeds()))
    labels = np.where(generator.random((B, H, W)) < draw(st.floats(0, 1)), 255, generator.integers(0, K, (B, H, W)))
    return generator.standard_normal((B, K, H, W)), labels


@given(labelled())
def test_it_is_the_cross_entropy_of_the_pixels_that_count(case):
    logits, labels = case
    loss, cache = F.pixel_cross_entropy(logits, labels)
    dlogits, counted = F.pixel_cross_entropy_backward(1.0, cache).transpose(0, 2, 3, 1), labels != 255
    np.testing.assert_array_equal(dlogits[~counted], 0)
    if not counted.any():
        assert loss == 0
        return
    expected, c_expected = F.cross_entropy(logits.transpose(0, 2, 3, 1)[counted], labels[counted])
    assert loss == pytest.approx(expected, rel=1e-12, abs=1e-14)
    np.testing.assert_allclose(dlogits[counted], F.cross_entropy_backward(1.0, c_expected), rtol=1e-12, atol=1e-14)


@given(case=labelled(), cut=st.integers(0, 4))
def test_parts_that_divide_by_their_share_of_the_count_add_up_to_the_batch(case, cut):
    logits, labels = case
    whole, c_whole = F.pixel_cross_entropy(logits, labels)
    total, loss, gradients = (labels != 255).sum(), 0, []
    for part in (slice(0, cut), slice(cut, len(logits))):
        share = len(labels[part]) / len(labels)
        if share:
            own, cache = F.pixel_cross_entropy(logits[part], labels[part], count=total * share)
            loss += share * own
            gradients.append(F.pixel_cross_entropy_backward(share, cache))
    assert loss == pytest.approx(whole, rel=1e-12, abs=1e-14)
    np.testing.assert_allclose(
        np.concatenate(gradients), F.pixel_cross_entropy_backward(1.0, c_whole), rtol=1e-12, atol=1e-15
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ignored_pixels_of_a_damaged_model_and_huge_logits_give_no_nan(dtype):
    logits = np.full((1, 2, 1, 3), [1e30, np.nan, -1e30], dtype)
    logits[0, 1, 0, 0] = -1e30
    loss, cache = F.pixel_cross_entropy(logits, np.array([[[0, 255, 0]]]))
    dlogits = F.pixel_cross_entropy_backward(1.0, cache)
    assert loss.dtype == dlogits.dtype == dtype and np.isfinite(loss) and np.isfinite(dlogits).all()


def test_what_does_not_fit_is_refused():
    logits, labels = np.ones((2, 3, 4, 5)), np.zeros((2, 4, 5), int)
    for wrong in (labels[:1], labels[:, 0], labels.astype("float64")):
        with pytest.raises(ValueError, match=r"expected logits \(B, K, H, W\) and labels as ints \(B, H, W\)"):
            F.pixel_cross_entropy(logits, wrong)
    for label in (3, -1):
        with pytest.raises(ValueError, match=f"expected labels from 0 to 2 or 255, got {min(label, 0)} to "):
            F.pixel_cross_entropy(logits, labels + label * (np.arange(5) == 0))
    assert F.pixel_cross_entropy(logits, labels + 7, ignore=7)[0] == 0
