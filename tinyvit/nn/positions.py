"""Positions that are added to the tokens.

Each kind has `forward(tokens, ctx, grid=None)` and its backward; `grid` is (rows, columns) of the patches if it isn't
the one that the positions were made for. They are then resized by `method`, as in `F.resize_positions`. Of the tokens,
the first `prefix` (P) are in no place of the grid: a class token, say.
"""

from tinyvit import functional as F
from tinyvit.nn import init
from tinyvit.nn.module import Module
from tinyvit.nn.tree import cache_type
from tinyvit.nn.variables import Buffer, Parameter

POSITION_STD = 0.02  # initial standard deviation of learned positions, as in the paper's code


AddedCache = cache_type("Added", "resize add")


def add(module, tokens, positions, grid):
    """Tokens plus a module's positions, which are resized if they were made for another grid."""
    c_resize = None
    if grid not in (None, module.grid):
        positions, c_resize = F.resize_positions(positions, module.grid, grid, module.method, module.prefix)
    y, c_add = F.add_positions(tokens, positions)
    return y, AddedCache(c_resize, c_add)


def add_backward(dy, cache, into=None):
    """Returns (dtokens, dpositions)."""
    if cache.resize is None:
        return F.add_positions_backward(dy, cache.add, into=into)
    dtokens, dpositions = F.add_positions_backward(dy, cache.add)
    return dtokens, F.resize_positions_backward(dpositions, cache.resize, into=into)


class LearnedPositions(Module):
    """A learned vector for every token: `pos_embed` (1, P+N, D). Dosovitskiy et al. 2021, eq. 1."""

    transparent = True

    def __init__(self, grid, dim, method="bilinear", prefix=1):
        self.grid, self.method, self.prefix = grid, method, prefix
        self.pos_embed = Parameter((1, prefix + grid[0] * grid[1], dim), init.normal(POSITION_STD), decay=False)

    def forward(self, tokens, ctx=None, grid=None):
        return add(self, tokens, self.pos_embed.value, grid)

    def backward(self, dtokens, cache):
        with self.gradients() as into:
            dx, _ = add_backward(dtokens, cache, into)
        return dx


GridPositionsLayerCache = cache_type("GridPositionsLayer", "grid added")


class GridPositions(Module):
    """A learned vector for every column and one for every row, half of D each. See `F.grid_positions`.

    `pos_embed_x` is (1, columns, D/2), `pos_embed_y` (1, rows, D/2).
    """

    transparent = True

    def __init__(self, grid, dim, method="bilinear", prefix=1):
        self.grid, self.method, self.prefix = grid, method, prefix
        rows, columns = grid
        self.pos_embed_x = Parameter((1, columns, dim // 2), init.normal(POSITION_STD), decay=False)
        self.pos_embed_y = Parameter((1, rows, dim // 2), init.normal(POSITION_STD), decay=False)

    def forward(self, tokens, ctx=None, grid=None):
        positions, c_grid = F.grid_positions(self.pos_embed_x.value, self.pos_embed_y.value, self.prefix)
        y, c_added = add(self, tokens, positions, grid)
        return y, GridPositionsLayerCache(c_grid, c_added)

    def backward(self, dtokens, cache):
        dx, dpositions = add_backward(dtokens, cache.added)
        with self.gradients() as into:
            F.grid_positions_backward(dpositions, cache.grid, into=into)
        return dx


class FixedPositions(Module):
    """Fixed sines and cosines: the buffer `pos_embed` (1, P+N, D)."""

    transparent = True

    def __init__(self, grid, table, method="bilinear", prefix=1):
        self.grid, self.method, self.prefix = grid, method, prefix
        self.pos_embed = Buffer(table.shape, init.constant(table))

    def forward(self, tokens, ctx=None, grid=None):
        return add(self, tokens, self.pos_embed.value, grid)

    def backward(self, dtokens, cache):
        return dtokens
