"""The similarity of position embeddings."""

import numpy as np

from tinyvit import functional as F
from tinyvit.backend import to_numpy
from tinyvit.nn.positions import FixedPositions, GridPositions, LearnedPositions
from tinyvit.probe.pictures import new_figure, show_grid_of_grids


def patch_positions(model):
    """The positions that a model adds to its patches, (N, D); ValueError if its first part adds none."""
    (_, first), *_ = model.parts()
    kinds = (LearnedPositions, GridPositions, FixedPositions)
    positions = next((module for _, module in first.named_modules() if isinstance(module, kinds)), None)
    if positions is None:
        kind = getattr(model.config, "positions", None)
        instead = f" with positions {kind!r}" if kind else f" such as {type(model).__name__}"
        rotates = ": it rotates queries and keys" if kind == "rope" else ""
        raise ValueError(f"a model{instead} adds none to its tokens{rotates}")
    if isinstance(positions, GridPositions):
        along = (to_numpy(p.data) for p in (positions.pos_embed_x, positions.pos_embed_y))
        return F.grid_positions(*along, prefix=0)[0][0]
    return to_numpy(positions.pos_embed.data)[0, positions.prefix :]


def position_similarity(positions, grid):
    """How alike the positions of every two patches are: (rows, columns, rows, columns).

        s[r, c, r′, c′] = p[r, c] · p[r′, c′] / (‖p[r, c]‖ ‖p[r′, c′]‖)

    positions (N, D), row by row of the grid (rows, columns), as `patch_positions` returns them. From −1 to 1; 0 for a
    position that is zero. Dosovitskiy et al. 2021, section 4.5, figure 7 in the middle.

    Raises ValueError for another number of positions than the grid has patches.
    """
    lengths = np.linalg.norm(positions, axis=1, keepdims=True)
    directions = np.divide(positions, lengths, out=np.zeros_like(positions), where=lengths > 0)
    return (directions @ directions.T).reshape(*grid, *grid)


def draw_position_similarity(similarity):
    """A matplotlib Figure of similarities (rows, columns, rows, columns), a grid of grids.

    The tile in row r, column c compares the position of that patch with all others.
    """
    rows, columns = similarity.shape[:2]
    figure, axes = new_figure(6.4 * max(1, columns / rows) ** 0.5, 5.6 * max(1, rows / columns) ** 0.5)
    picture = show_grid_of_grids(axes, similarity, cmap="viridis", vmax=1)
    axes.set_title("similarity of position embeddings", fontsize=11)
    figure.colorbar(picture, ax=axes, label="cosine similarity")
    return figure
