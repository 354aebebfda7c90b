import numpy as np
import pytest

from tinyvit import probe
from tinyvit.probe.spectrum import MIN_AMPLITUDE


def spectrum(feature):
    """The spectrum of a single feature map (rows, columns)."""
    tokens = np.concatenate([[99.0], feature.ravel()])[None, None, :, None]  # a class token that is to be left out
    frequencies, amplitudes = probe.fourier_spectrum(tokens, feature.shape)
    return frequencies, amplitudes[0, 0]


@pytest.mark.parametrize("grid", [(8, 8), (4, 6), (6, 4), (5, 5)])
def test_a_constant_map_has_nothing_but_frequency_zero(grid):
    n = min(grid)
    frequencies, amplitudes = spectrum(np.full(grid, 3.0))
    np.testing.assert_allclose(frequencies, 2 * np.arange(n // 2 + 1) / n)
    zero = np.log(MIN_AMPLITUDE) - np.log(3 * grid[0] * grid[1] + MIN_AMPLITUDE)
    assert amplitudes[0] == 0
    np.testing.assert_allclose(amplitudes[1:], zero, atol=1e-6)


def test_a_diagonal_wave_has_its_frequency_alone_and_half_its_height():
    r, c = np.indices((8, 8))
    frequencies, amplitudes = spectrum(2 + 0.5 * np.cos(2 * np.pi * 2 * (r + c) / 8))
    assert frequencies[2] == 0.5
    assert amplitudes[2] == pytest.approx(np.log(0.25 / 2), abs=1e-6)
    assert (np.delete(amplitudes, [0, 2]) < -15).all()


def test_it_is_the_diagonal_of_the_two_dimensional_fourier_transform_in_the_mean_of_logarithms():
    stream = np.random.default_rng(0).standard_normal((3, 2, 1 + 64, 5))
    maps = stream[:, :, 1:].reshape(3, 2, 8, 8, 5)
    logs = np.log(np.abs(np.fft.fft2(maps, axes=(2, 3))) + MIN_AMPLITUDE).mean(-1)
    expected = np.stack([logs[:, :, k, k] - logs[:, :, 0, 0] for k in range(5)], -1)
    np.testing.assert_allclose(probe.fourier_spectrum(stream, (8, 8))[1], expected, atol=1e-10)


@pytest.mark.parametrize("grid", [(4, 6), (6, 4), (3, 8), (2, 5)])
def test_on_a_grid_that_is_not_square_frequencies_are_cycles_a_patch_in_both_directions(grid):
    """Compared with the transform of the zero-padded map on a square in which these frequencies have whole periods."""
    n, side = min(grid), 8 * min(grid)
    feature = np.random.default_rng(0).standard_normal(grid)
    logs = np.log(np.abs(np.fft.fft2(feature, s=(side, side))) + MIN_AMPLITUDE)
    frequencies, amplitudes = spectrum(feature)
    np.testing.assert_array_equal(frequencies, 2 * np.arange(n // 2 + 1) / n)
    expected = [logs[8 * k, 8 * k] - logs[0, 0] for k in range(n // 2 + 1)]
    np.testing.assert_allclose(amplitudes, expected, atol=1e-10)
    np.testing.assert_allclose(spectrum(feature.T)[1], amplitudes, atol=1e-12)


def test_a_single_row_of_patches_has_frequency_zero_only():
    frequencies, amplitudes = spectrum(np.arange(4.0)[None])
    assert frequencies.tolist() == amplitudes.tolist() == [0]


@pytest.mark.parametrize("depth", [1, 20])
def test_the_figure_has_a_line_for_each_depth_and_the_highest_frequency_by_depth(depth):
    amplitudes = np.random.default_rng(0).standard_normal((depth, 5))
    figure = probe.draw_spectrum(np.linspace(0, 1, 5), amplitudes)
    left, right, _ = figure.axes
    np.testing.assert_array_equal([line.get_ydata() for line in left.lines], amplitudes)
    np.testing.assert_array_equal(right.lines[0].get_ydata(), amplitudes[:, -1])
    figure.canvas.draw()
