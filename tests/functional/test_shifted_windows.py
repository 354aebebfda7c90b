from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import SIZES, normals, seeds

from tinyvit import functional as F
from tinyvit import gradcheck


@st.composite
def grids(draw, dtype="float64"):
    """Tokens in a grid x (B, H, W, D), and a window and a shift that go with it; the window divides it or not."""
    window = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    (x,) = draw(normals((draw(SIZES), draw(st.integers(1, 7)), draw(st.integers(1, 7)), draw(SIZES)), dtype=dtype))
    return x, {"window": window, "shift": draw(st.integers(0, min(window) - 1))}


@given(drawn=grids(), seed=seeds())
def test_gradients_match_the_complex_step(drawn, seed):
    x, options = drawn
    report = gradcheck.check(partial(F.to_windows, **options), F.to_windows_backward, (x,), directions=3, seed=seed)
    assert report.max_error < 1e-10, report
    windows, _ = F.to_windows(x, **options)
    back = partial(F.from_windows, sides=x.shape[1:3], **options)
    report = gradcheck.check(back, F.from_windows_backward, (windows,), directions=3, seed=seed)
    assert report.max_error < 1e-10, report


@given(drawn=grids())
def test_windows_that_are_put_back_are_what_was_cut(drawn):
    x, options = drawn
    windows, _ = F.to_windows(x, **options)
    np.testing.assert_array_equal(F.from_windows(windows, x.shape[1:3], **options)[0], x)


@given(drawn=grids())
def test_a_window_holds_the_tokens_of_its_rectangle(drawn):
    x, options = drawn
    (B, H, W, D), (p, q), shift = x.shape, options["window"], options["shift"]
    rows, columns = -(-H // p), -(-W // q)
    padded = np.zeros((B, rows * p, columns * q, D))
    padded[:, :H, :W] = x
    windows = F.to_windows(x, **options)[0].reshape(B, rows, columns, p, q, D)
    for i, j, r, c in np.ndindex(rows, columns, p, q):
        there = padded[:, (i * p + r + shift) % (rows * p), (j * q + c + shift) % (columns * q)]
        np.testing.assert_array_equal(windows[:, i, j, r, c], there)


@given(window=st.integers(2, 4), data=st.data())
def test_masks_let_those_tokens_see_each_other_that_are_near_in_the_padded_grid(window, data):
    sides = data.draw(st.tuples(*[st.integers(window + 1, 9)] * 2))
    shift = data.draw(st.integers(1, window - 1))
    masks = F.window_masks(sides, (window, window), shift)
    padded = [-(-side // window) * window for side in sides]
    places = np.stack(np.meshgrid(*map(np.arange, padded), indexing="ij"), -1)[None].astype(float)
    cut, _ = F.to_windows(places, window, shift)                               # (windows, n, 2): where each token was
    near = (np.abs(cut[:, :, None] - cut[:, None]) < window).all(-1)
    np.testing.assert_array_equal(masks == 0, near)
    assert set(np.unique(masks)) <= {0, -np.inf}


@pytest.mark.parametrize("call, message", [
    (lambda: F.to_windows(np.ones((2, 3, 4)), 2), r"to_windows: expected tokens in a grid, x \(B, H, W, D\), got \(2,"),
    (lambda: F.to_windows(np.ones((2, 0, 4, 1)), 2), "to_windows: expected tokens in a grid"),
    (lambda: F.to_windows(np.ones((2, 3, 4, 1)), 0), "expected a size as a positive int"),
    (lambda: F.to_windows(np.ones((2, 3, 4, 1)), (2, 3), 2), "an int from 0 to below the window's 2×3, got 2"),
    (lambda: F.from_windows(np.ones((3, 4, 1)), (4, 4), 2), r"expected windows x \(B · 4, 4, D\) of 2×2 tokens for a"),
    (lambda: F.from_windows(np.ones((4, 3, 1)), (4, 4), 2), r"for a grid 4×4, got \(4, 3, 1\)"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
