"""Mean attention distance of each head."""

import numpy as np

from tinyvit.functional.patches import as_pair
from tinyvit.probe.pictures import new_figure


def patch_distances(grid, patch_size):
    """The distance in pixels between the centres of every two patches of a grid (rows, columns): (N, N)."""
    places = np.indices(grid).reshape(2, -1).T * as_pair(patch_size)          # (N, 2)
    return np.linalg.norm((places[:, None] - places).astype(float), axis=-1)


def mean_attention_distance(attention, grid, patch_size, prefix=1):
    """How far the patches look, in pixels: (L, B, H), a mean weighted by the attention for each image.

        distance = Σᵢⱼ Aᵢⱼ dᵢⱼ / Σᵢⱼ Aᵢⱼ      over all query patches i and key patches j

    attention (L, B, H, T, T); d is `patch_distances`. The first `prefix` tokens have no place and are left out; a head
    that looks at nothing else has no distance, NaN. `.mean(1)` is the mean over the images.

    The mean is over all pairs of patches, so query i counts with the weight Σⱼ Aᵢⱼ, which is 1 less its attention to
    the class token. The plain mean over queries of Σⱼ Aᵢⱼ dᵢⱼ / Σⱼ Aᵢⱼ is equal if all queries give the class token
    the same weight, and differs otherwise. Dosovitskiy et al. 2021, section 4.5, figure 7 on the right, and appendix
    D.7, figure 11, average "the distance between the query pixel and all other pixels, weighted by the attention
    weight", and don't say how several queries, or the class token, are averaged.

    Raises ValueError for attention that doesn't fit the grid.
    """
    d, A = patch_distances(grid, patch_size), attention[..., prefix:, prefix:]
    weights = A.sum((-2, -1), dtype=float)
    return np.divide((A * d).sum((-2, -1)), weights, out=np.full(weights.shape, np.nan), where=weights > 0)


def uniform_attention_distance(grid, patch_size):
    """The mean attention distance of a head that looks at all patches alike, in pixels."""
    return float(patch_distances(grid, patch_size).mean())


def draw_attention_distance(distances, uniform):
    """A matplotlib Figure of distances (L, H) in pixels, one dot per head, over the depth.

    uniform   `uniform_attention_distance`, drawn as a line: that of a head without any preference
    """
    figure, axes = new_figure(6, 3.8)
    blocks = np.arange(len(distances))
    axes.scatter(blocks.repeat(distances.shape[1]), distances, s=22, color="tab:blue", alpha=0.7, label="a head")
    axes.plot(blocks, np.ma.masked_invalid(distances).mean(1), color="tab:blue", linewidth=1, label="mean of the heads")
    axes.axhline(uniform, color="tab:gray", linestyle="--", linewidth=1, label="all patches alike")
    top = 1.08 * max(uniform, np.nanmax(distances, initial=0)) or 1
    axes.set(xlabel="block", ylabel="mean attention distance in pixels", ylim=(0, top))
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    return figure
