import numpy as np
import pytest

from tinyvit import probe


def test_filters_along_two_directions_have_these_as_components_and_their_variances():
    first, second = np.zeros((3, 2, 2)), np.zeros((3, 2, 2))
    first[0], second[2, 0] = 0.5, [0.6, 0.8]
    along = np.array([3.0, -3, 3, -3])[:, None, None, None], np.array([1.0, 1, -1, -1])[:, None, None, None]
    found = probe.filter_components(7 + along[0] * first + along[1] * second, count=2)
    assert found.components.shape == (2, 3, 2, 2)
    for component, direction in zip(found.components, (first, second)):
        assert abs((component * direction).sum()) == pytest.approx(1, rel=1e-12)
    np.testing.assert_allclose(found.variance, [0.9, 0.1], rtol=1e-12)


def test_components_are_orthonormal_and_all_of_them_explain_all_of_the_variance():
    weight = np.random.default_rng(0).standard_normal((40, 3, 2, 2))
    found = probe.filter_components(weight)
    flat = found.components.reshape(12, 12)
    np.testing.assert_allclose(flat @ flat.T, np.eye(12), atol=1e-12)
    assert found.variance.sum() == pytest.approx(1, rel=1e-12)
    assert (np.diff(found.variance) <= 0).all()


def test_there_are_no_more_components_than_filters_or_pixels():
    generator = np.random.default_rng(0)
    assert len(probe.filter_components(generator.standard_normal((5, 3, 4, 4))).components) == 5
    assert len(probe.filter_components(generator.standard_normal((64, 1, 2, 2))).components) == 4
    assert len(probe.filter_components(generator.standard_normal((64, 3, 4, 4))).components) == 28


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_the_figure_has_a_tile_for_each_component_grey_where_it_is_zero(channels):
    found = probe.filter_components(np.random.default_rng(0).standard_normal((64, channels, 3, 3)), count=9)
    components = found.components.copy()
    components[0] = 0
    figure = probe.draw_filter_components(found._replace(components=components))
    tiles = [axes.images[0].get_array() for axes in figure.axes if axes.images]
    assert len(tiles) == 9 and (tiles[0] == 0.5).all()
    if channels == 3:
        extreme = np.abs(tiles[1] - 0.5).max()
        assert tiles[1].shape == (3, 3, 3) and extreme == pytest.approx(0.5)
    figure.canvas.draw()
