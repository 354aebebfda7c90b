"""Fourier spectra of features, by depth."""

import numpy as np

from tinyvit.probe.pictures import new_figure

MIN_AMPLITUDE = 1e-6  # is added to amplitudes, so that one that is zero has a logarithm; as in the authors' code


def fourier_spectrum(stream, grid, prefix=1):
    """The relative log amplitude of feature maps by frequency: frequencies (F,), and amplitudes (L, B, F).

        X(f) = Σ_rc x[r, c] exp(−2πi f (r + c))     Δ(f) = mean over channels of log(|X(f)| + ε) − log(|X(0)| + ε)

    stream is (L, B, T, D), such as `Trace.residual_stream`; x are its patches, after `prefix` tokens, in the grid
    (rows, columns), channel by channel. X is their Fourier transform along the diagonal, f = k/n cycles a patch for
    k = 0 … n/2 and n = min(rows, columns). Frequencies are returned as shares of the highest that patches can carry
    (2f; the paper's "× π"). 0 at f = 0; the lower the rest, the smoother the maps. ε = 10⁻⁶.

    On a square grid X is the diagonal of the two-dimensional discrete Fourier transform, which the authors take. On one
    that is not square that transform has no diagonal with one frequency in both directions. Here f is the same in both,
    in cycles a patch; its waves have whole periods along the shorter side alone, which are enough for a constant map,
    and every wave of another of these frequencies, to have nothing at f. A grid and its transpose have equal spectra.
    Park & Kim 2022, "How do vision transformers work?", section 3, figures 2 and 8.

    Raises ValueError for a stream that doesn't fit the grid, or has none.
    """
    if grid is None:
        raise ValueError("the tokens of a layer have no places in a grid")
    rows, columns = grid
    n = min(grid)
    frequencies = np.arange(n // 2 + 1) / n
    diagonal = np.add.outer(np.arange(rows), np.arange(columns)).ravel()      # r + c, (N,)
    waves = np.exp(-2j * np.pi * np.outer(frequencies, diagonal))             # (F, N)
    logs = np.log(np.abs(waves @ stream[:, :, prefix:]) + MIN_AMPLITUDE).mean(-1)  # (L, B, F)
    return 2 * frequencies, logs - logs[..., :1]


def draw_spectrum(frequencies, amplitudes):
    """A matplotlib Figure of amplitudes (L, F): by frequency, one line per depth; and the highest frequency by depth.

    Depth 0 is what the first layer reads.
    """
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    L = len(amplitudes)
    norm, colours = Normalize(0, max(1, L - 1)), colormaps["viridis"]
    figure, (left, right) = new_figure(9, 3.6, columns=2)
    for depth, line in enumerate(amplitudes):
        left.plot(frequencies, line, color=colours(norm(depth)), marker="o", markersize=3)
    left.set(xlabel="frequency, as a share of the highest", ylabel="Δ log amplitude", title="feature maps by frequency")
    figure.colorbar(ScalarMappable(norm, colours), ax=left, label="blocks passed", ticks=range(0, L, -(-L // 8)))
    right.plot(range(L), amplitudes[:, -1], color="tab:gray", linewidth=1, zorder=1)
    right.scatter(range(L), amplitudes[:, -1], c=range(L), cmap=colours, norm=norm, zorder=2)
    right.set(xlabel="blocks passed", title="the highest frequency by depth")
    right.xaxis.get_major_locator().set_params(integer=True)
    for axes in (left, right):
        axes.grid(alpha=0.3)
    return figure
