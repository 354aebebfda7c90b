"""The kinds of positions that are added to the tokens. Each has `forward(tokens, ctx)` and its backward."""

from typing import NamedTuple

from tinyvit import functional as F
from tinyvit.functional.positions import AddPositionsCache, GridPositionsCache
from tinyvit.nn import init
from tinyvit.nn.module import Module
from tinyvit.nn.storage import Buffer, Parameter

POSITION_STD = 0.02  # of learned positions at the start, as in the paper's code


class LearnedPositions(Module):
    """A learned vector for every token: `pos_embed` (1, N+1, D). Dosovitskiy et al. 2021, eq. 1."""

    transparent = True

    def __init__(self, grid, dim):
        tokens = 1 + grid[0] * grid[1]
        self.pos_embed = Parameter((1, tokens, dim), init.normal(POSITION_STD), decay=False)

    def forward(self, tokens, ctx=None):
        return F.add_positions(tokens, self.pos_embed.value)

    def backward(self, dtokens, cache):
        with self.gradients() as into:
            dx, _ = F.add_positions_backward(dtokens, cache, into=into)
        return dx


class GridPositionsLayerCache(NamedTuple):
    grid: GridPositionsCache
    add: AddPositionsCache


class GridPositions(Module):
    """A learned vector for every column and one for every row, half of D each. See `F.grid_positions`.

    `pos_embed_x` is (1, columns, D/2), `pos_embed_y` (1, rows, D/2).
    """

    transparent = True

    def __init__(self, grid, dim):
        rows, columns = grid
        self.pos_embed_x = Parameter((1, columns, dim // 2), init.normal(POSITION_STD), decay=False)
        self.pos_embed_y = Parameter((1, rows, dim // 2), init.normal(POSITION_STD), decay=False)

    def forward(self, tokens, ctx=None):
        positions, c_grid = F.grid_positions(self.pos_embed_x.value, self.pos_embed_y.value)
        y, c_add = F.add_positions(tokens, positions)
        return y, GridPositionsLayerCache(c_grid, c_add)

    def backward(self, dtokens, cache):
        dx, dpositions = F.add_positions_backward(dtokens, cache.add)
        with self.gradients() as into:
            F.grid_positions_backward(dpositions, cache.grid, into=into)
        return dx


class FixedPositions(Module):
    """Sines and cosines that are not learned: the buffer `pos_embed` (1, N+1, D)."""

    transparent = True

    def __init__(self, table):
        self.pos_embed = Buffer(table.shape, init.constant(table))

    def forward(self, tokens, ctx=None):
        return F.add_positions(tokens, self.pos_embed.value)

    def backward(self, dtokens, cache):
        dx, _ = F.add_positions_backward(dtokens, cache, into=(False,))
        return dx


class NoPositions(Module):
    """Leaves the tokens as they are: a ViT with this can't tell one order of the patches from another."""

    transparent = True

    def forward(self, tokens, ctx=None):
        return tokens, None

    def backward(self, dtokens, cache):
        return dtokens
