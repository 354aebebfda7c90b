import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import ndimage
from strategies import seeds

from tinyvit.functional.interpolation import INTERPOLATIONS, bicubic, bilinear, zoom

SIDES = st.integers(1, 20)
METHODS = st.sampled_from(list(INTERPOLATIONS))


@given(old=SIDES, new=SIDES, method=METHODS)
def test_a_constant_stays_constant(old, new, method):
    matrix = INTERPOLATIONS[method](old, new)
    assert matrix.shape == (new, old)
    np.testing.assert_allclose(matrix.sum(1), 1, atol=1e-13)


@given(old=SIDES, new=SIDES, method=METHODS)
def test_interpolation_commutes_with_mirroring(old, new, method):
    assume(new > 1 or method != "zoom")  # a single point with aligned corners is the first
    matrix = INTERPOLATIONS[method](old, new)
    np.testing.assert_allclose(matrix[::-1, ::-1], matrix, atol=1e-12)


@given(side=SIDES, method=METHODS)
def test_interpolating_to_the_same_size_changes_nothing(side, method):
    np.testing.assert_allclose(INTERPOLATIONS[method](side, side), np.eye(side), atol=1e-13)


@given(old=st.integers(2, 12), new=st.integers(2, 12), seed=seeds())
def test_zoom_is_scipys_linear_zoom(old, new, seed):
    x = np.random.default_rng(seed).standard_normal((old, 3))
    with_edges = ndimage.zoom(x, (new / old, 1), order=1, mode="nearest")
    assert with_edges.shape == (new, 3)
    np.testing.assert_allclose(zoom(old, new) @ x, with_edges, atol=1e-12)


@pytest.mark.parametrize(("old", "new"), [(3, 1), (1, 3), (1, 1)])
def test_zoom_is_scipys_where_an_axis_has_a_single_point(old, new):
    x = np.random.default_rng(old).standard_normal((old, 3))
    np.testing.assert_allclose(zoom(old, new) @ x, ndimage.zoom(x, (new / old, 1), order=1, mode="nearest"), atol=1e-14)


@given(old=st.integers(2, 20), new=st.integers(2, 20))
def test_zoom_keeps_the_ends_and_a_straight_line(old, new):
    np.testing.assert_allclose(zoom(old, new) @ np.arange(old), np.linspace(0, old - 1, new), atol=1e-12)


@given(old=st.integers(5, 20), new=st.integers(1, 40), slope=st.floats(-3, 3))
def test_bilinear_keeps_a_straight_line_between_the_outermost_centres(old, new, slope):
    places = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, old - 1)
    np.testing.assert_allclose(bilinear(old, new) @ (slope * np.arange(old)), slope * places, atol=1e-12)


@given(old=st.integers(6, 20), new=st.integers(1, 40))
def test_keys_own_cubic_keeps_a_parabola(old, new):  # his reason for a = −1/2; a = −3/4 is sharper and doesn't
    places = (np.arange(new) + 0.5) * old / new - 0.5
    inside = (places >= 1) & (places <= old - 2)
    got = bicubic(old, new, a=-0.5) @ np.arange(old) ** 2
    np.testing.assert_allclose(got[inside], places[inside] ** 2, atol=1e-9)


def test_bicubic_overshoots_at_an_edge_which_bilinear_does_not():
    step = np.repeat([0.0, 1.0], 4)
    sharp, soft = bicubic(8, 16) @ step, bilinear(8, 16) @ step
    assert sharp.min() < -0.03 and sharp.max() > 1.03
    assert soft.min() == 0 and soft.max() == 1
