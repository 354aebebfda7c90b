"""Attention maps of each head."""

import numpy as np

from tinyvit.probe.pictures import HEAT_COLOURS, heat_bar, new_figure, show_grid_of_grids, show_heat
from tinyvit.probe.trace import no_attention, trace


def over_patches(weights, grid, query="token", prefix=1):
    """One query's weights for each patch, (…, rows, columns), from token-to-token weights (…, T, T).

    weights[…, i, j], as in the attention of a `Trace`, says how much token i takes from token j; after the first
    `prefix` tokens, such as the class token, come the patches of the grid (rows, columns), row by row.

    query   "token", the first token; "avg", the mean over all patches, as a head without class token reads; or the
            number of a token

    Raises ValueError for weights that don't fit the grid, and for a query that doesn't exist.
    """
    rows, columns = grid
    count = prefix + rows * columns
    if weights.shape[-2:] != (count, count):
        raise ValueError(f"expected weights (…, {count}, {count}) for {rows}×{columns} patches, got {weights.shape}")
    if query == "avg":
        taken = weights[..., prefix:, prefix:].mean(-2)
    elif query == "token" or (isinstance(query, (int, np.integer)) and 0 <= query < count):
        taken = weights[..., 0 if query == "token" else query, prefix:]
    else:
        raise ValueError(f'expected "token", "avg" or a token from 0 to {count - 1}, got {query!r}')
    return taken.reshape(*taken.shape[:-1], rows, columns)


def attention_maps(model, images, query=None):
    """How much `query` takes from each patch of the images, in every block and head: (L, B, H, rows, columns).

        map[l, b, h] = probs[l, b, h, query, prefix:]   or   (1/N) Σᵢ probs[l, b, h, i, prefix:] for the query "avg"

    images   as `model.predict` takes them
    query    see `over_patches`; by default what the head reads, "token" or "avg"

    A map adds up to 1 less what goes to the prefix tokens. Raises ValueError for a model without one attention over all
    patches in every block. Dosovitskiy et al. 2021, section 4.5.
    """
    seen = trace(model, model.to_input(images))
    if seen.attention is None:
        raise ValueError(no_attention(model))
    if query is None:
        query = "token" if model.pooling == "token" else "avg"
    return over_patches(seen.attention, seen.grid, query, seen.prefix)


def head_maps(attention, grid, prefix=1):
    """How much every patch takes from every patch: (…, rows, columns, rows, columns), of attention (…, T, T)."""
    rows, columns = grid
    taken = np.stack([over_patches(attention, grid, prefix + i, prefix) for i in range(rows * columns)], -3)
    return taken.reshape(*taken.shape[:-3], rows, columns, rows, columns)


def draw_attention_maps(maps, image, *, blocks=None, heads=None, title=""):
    """A matplotlib Figure of maps (L, H, rows, columns) over an image (C, H, W): a row per block, a column per head.

    image           pixels from 0 to 1
    blocks, heads   their numbers from 0, where maps are only some of a model's

    All panels share one colour scale, which goes with the square root of the share.
    """
    from matplotlib.colors import PowerNorm

    L, H = maps.shape[:2]
    blocks, heads = blocks or range(L), heads or range(H)
    side = float(np.clip(min(11 / H, 14 / L), 0.9, 1.8)) if L * H > 1 else 3.5                     # inches
    width = max(4.0, H * side + 1.1)
    figure, panels = new_figure(width, L * side + 0.8, L, H, squeeze=False)
    figure.set_layout_engine("compressed", w_pad=0.03, h_pad=0.03, wspace=0, hspace=0)
    norm = PowerNorm(0.5, 0, float(maps.max()) or 1)
    for i, block in enumerate(blocks):
        for j, head in enumerate(heads):
            show_heat(panels[i, j], maps[i, j], image, norm)
            if i == 0:
                panels[i, j].set_title(f"head {head}", fontsize=9)
            if j == 0:
                panels[i, j].set_ylabel(f"block {block}", fontsize=9)
    heat_bar(figure, panels, norm, "share of the attention", percent=True,
             fraction=0.2 / width, aspect=max(L * side, 1) / 0.15)  # fmt: skip
    figure.suptitle(title, fontsize=9, parse_math=False)
    return figure


def draw_head_maps(maps, *, title=""):
    """A matplotlib Figure of where every patch looks, (rows, columns, rows, columns): a grid of grids.

    The tile in row r, column c shows where the patch in row r, column c of the image looks; it is marked.
    """
    from matplotlib.colors import PowerNorm

    rows, columns = maps.shape[:2]
    figure, axes = new_figure(6.4 * max(1, columns / rows) ** 0.5 + 1, 6.4 * max(1, rows / columns) ** 0.5)
    norm = PowerNorm(0.5, 0, float(maps.max()) or 1)
    show_grid_of_grids(axes, maps, marked=True, cmap=HEAT_COLOURS, norm=norm)
    axes.set_title(title, fontsize=10, parse_math=False)
    heat_bar(figure, axes, norm, "share of the attention", percent=True)
    return figure
