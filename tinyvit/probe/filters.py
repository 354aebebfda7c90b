"""Principal components of the filters that read the images."""

from typing import NamedTuple

import numpy as np

from tinyvit.backend import to_numpy
from tinyvit.probe.pictures import display_pixels, picture_panels


class FilterComponents(NamedTuple):
    components: np.ndarray  # (n, C, P, Q)  orthonormal, the one with the largest variance first
    variance: np.ndarray    # (n,)  share of the filters' variance along each


def patch_filters(model):
    """The filters (D, C, P, Q) that read the images, of a patch embedding or a first convolution, a NumPy array;
    ValueError if there are none."""
    if model.image_filters is None:
        raise ValueError(f"{type(model).__name__} has no filters that read the images")
    return to_numpy(model.image_filters.data)


def filter_components(weight, count=28):
    """The principal components of patch filters (D, C, P, Q): `FilterComponents`.

    The D filters are points with C·P·Q coordinates; their components are the eigenvectors of the covariance,

        Σ = (1/(D−1)) Σᵢ (wᵢ − w̄)(wᵢ − w̄)ᵀ = V Λ Vᵀ        variance = λ / Σ λ

    `count` of them, or all if there are fewer. Dosovitskiy et al. 2021, section 4.5, figure 7 on the left.
    """
    from sklearn.decomposition import PCA

    flat = weight.reshape(len(weight), -1)
    with np.errstate(invalid="ignore"):  # filters that are all the same have no variance to share
        pca = PCA(min(count, *flat.shape), svd_solver="full").fit(flat)
    total = flat.var(0, ddof=1).sum()
    variance = pca.explained_variance_ / total if total > 0 else np.zeros_like(pca.explained_variance_)
    return FilterComponents(pca.components_.reshape(-1, *weight.shape[1:]), variance)


def draw_filter_components(found):
    """A matplotlib Figure of `FilterComponents`, a tile each: grey is 0, and the largest entry is black or white.

    Three channels are shown as RGB, of another number the mean.
    """
    figure, panels = picture_panels(len(found.components), 7, 1.15, 1.35, extra=0.5)
    for i, (axes, component) in enumerate(zip(panels, found.components)):
        largest = np.abs(component).max()
        axes.imshow(display_pixels(0.5 + 0.5 * component / (largest or 1)), cmap="gray", vmin=0, vmax=1)
        axes.set_title(f"{i + 1}: {100 * found.variance[i]:.1f} %", fontsize=8)
    figure.suptitle("principal components of the first filters, and their share of the variance", fontsize=9)
    return figure
