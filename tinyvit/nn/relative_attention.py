"""Multi-head self-attention with relative positions, over a whole grid or in windows of it."""

from typing import Any, NamedTuple

from tinyvit import functional as F
from tinyvit.backend import device_of
from tinyvit.functional.heads import MergeHeadsCache, SplitHeadsCache
from tinyvit.functional.interpolation import matrix_on
from tinyvit.functional.linear import LinearCache
from tinyvit.functional.relative_bias import RelativeBiasCache
from tinyvit.functional.sums import sum_first
from tinyvit.nn import init
from tinyvit.nn.layers import Linear
from tinyvit.nn.module import Module
from tinyvit.nn.tree import tree
from tinyvit.nn.variables import Parameter

TABLE_STD = 0.02


class RelativeAttentionCache(NamedTuple):
    qkv: LinearCache
    split: SplitHeadsCache
    bias: RelativeBiasCache
    windows: int | None  # W, where masks differ by window
    heads: Any           # of the attention: heads.probs is (B, H, n, n), or with masks (B, W·H, n, n)
    merge: MergeHeadsCache
    proj: LinearCache

    __repr__ = tree


class RelativeAttention(Module):
    """Every token takes from all tokens, and how much depends on where they are to each other, too:

        probsₕ = softmax(qₕ kₕᵀ / √d + biasₕ),   with biasₕ from `functional.relative_bias`

    x is (B, n, dim), y (B, n, out_dim). `sides` is the largest grid (rows, columns) of the n tokens that the table of
    relative positions is for; a smaller one is given in the call.
    Liu et al. 2021, "Swin transformer", eq. 4; Dai et al. 2021, "CoAtNet", eq. 3, with the difference added before the
    softmax.
    """

    def __init__(self, dim, out_dim, num_heads, sides, qkv_bias=True):
        if out_dim % num_heads:
            raise ValueError(f"a width of {out_dim} is not divisible by {num_heads} heads")
        rows, columns = sides
        self.sides, self.num_heads = (rows, columns), num_heads
        table = (2 * rows - 1) * (2 * columns - 1), num_heads
        self.relative_position_bias_table = Parameter(table, init.normal(TABLE_STD), decay=False)
        self.qkv = Linear(dim, 3 * out_dim, qkv_bias, weight_init=init.xavier_uniform(dim, out_dim))
        self.qkv.weight.parts = 3
        self.proj = Linear(out_dim, out_dim)

    def forward(self, x, ctx=None, grid=None, masks=None):
        """y and the cache.

        grid    (rows, columns) of the n tokens, by default `sides`
        masks   (W, n, n), added to the scores, where x has W windows of each sample one after the other
        """
        qkv, c_qkv = self.qkv(x, ctx)                                                 # (B, n, 3·out_dim)
        bias, c_bias = F.relative_bias(self.relative_position_bias_table.value, self.sides, grid)
        num_heads, windows = self.num_heads, None
        if masks is not None:
            windows, n = masks.shape[:2]
            num_heads = windows * num_heads
            qkv = windows_side_by_side(qkv, windows, 3)                               # (B/W, n, 3·W·out_dim)
            bias = (bias + masks[:, None]).reshape(-1, n, n)                          # (W·H, n, n)
        heads, c_split = F.split_heads(qkv, num_heads)                                # each (B, H, n, d)
        y, c_heads = F.attention(*heads, bias)
        y, c_merge = F.merge_heads(y)                                                 # (B, n, out_dim)
        y = y if windows is None else windows_apart(y, windows)
        y, c_proj = self.proj(y, ctx)
        return y, RelativeAttentionCache(c_qkv, c_split, c_bias, windows, c_heads, c_merge, c_proj)

    def backward(self, dy, cache):
        windows = cache.windows
        dy = self.proj.backward(dy, cache.proj)
        dy = dy if windows is None else windows_side_by_side(dy, windows)
        dy = F.merge_heads_backward(dy, cache.merge)                                  # (B, H, n, d)
        gradients = F.attention_backward(dy, cache.heads)
        dbias, dqkv = gradients[3], F.split_heads_backward(gradients, cache.split)
        if windows is not None:
            dqkv = windows_apart(dqkv, windows, 3)
            dbias = sum_first(dbias.reshape(windows, -1, *dbias.shape[1:]))
        with self.gradients() as into:
            F.relative_bias_backward(dbias, cache.bias, into=into)
        return self.qkv.backward(dqkv, cache.qkv)


def resized_table(table, sides, new_sides):
    """A table of relative positions for a grid of other sides, as an array.

    Of an axis that is shorter the middle is taken, the differences that are left; along a longer one the table is
    stretched linearly, its outermost differences at the ends. Dai et al. 2021, "CoAtNet", appendix A.1.
    """
    for axis, (old, new) in enumerate(zip(sides, new_sides)):
        rows, columns = (2 * side - 1 for side in (*new_sides[:axis], *sides[axis:]))
        table = table.reshape(rows, columns, -1)
        table = table.transpose(1, 0, 2) if axis else table                    # the axis that changes in front
        if new <= old:
            table = table[old - new : old + new - 1]
        else:
            matrix = matrix_on(device_of(table), "zoom", 2 * old - 1, 2 * new - 1, table.real.dtype)
            table = (matrix @ table.reshape(len(table), -1)).reshape(len(matrix), *table.shape[1:])
        table = table.transpose(1, 0, 2) if axis else table
    return table.reshape(-1, table.shape[2])


def windows_side_by_side(x, windows, parts=1):
    """Tokens (B·W, n, parts·D) of windows as those of samples, (B, n, parts·W·D), each part with those of all windows.

    So heads of windows become heads of samples, and each window has a mask of its own.
    """
    tokens, D = x.shape[1], x.shape[2] // parts
    x = x.reshape(-1, windows, tokens, parts, D).transpose(0, 2, 3, 1, 4)
    return x.reshape(len(x), tokens, parts * windows * D)


def windows_apart(x, windows, parts=1):
    """The inverse of `windows_side_by_side`."""
    B, tokens, width = x.shape
    x = x.reshape(B, tokens, parts, windows, -1).transpose(0, 3, 1, 2, 4)
    return x.reshape(B * windows, tokens, width // windows)
