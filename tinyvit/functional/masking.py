"""Tokens that are hidden, and the loss on what is guessed of them."""

from typing import NamedTuple

from tinyvit.arrays import Array, array_module
from tinyvit.dispatch import backward_of, operation
from tinyvit.functional.sums import sum_rows
from tinyvit.functional.tokens import check_index, rows_of
from tinyvit.functional.windows import is_int


class ReplaceTokensCache(NamedTuple):
    mask: Array    # (B, N)
    shape: tuple   # of the tokens


@operation(arrays="x token", any_dtype="mask")
def replace_tokens(x, token, mask):
    """Put `token` (1, 1, D) in place of those of the tokens `x` (B, N, D) where `mask` (B, N) is true.

    Dosovitskiy et al. 2021, appendix B.1.2. Derived in notebooks/15.
    """
    check_token("replace_tokens", x, token)
    if mask.shape != x.shape[:2] or mask.dtype.kind != "b":
        raise ValueError(f"replace_tokens: expected a mask of bools {x.shape[:2]}, got {mask.dtype} {mask.shape}")
    return array_module(x).where(mask[..., None], token, x), ReplaceTokensCache(mask, x.shape)


@backward_of(
    replace_tokens, result=lambda cache: cache.shape, parameters=lambda cache: [(1, 1, cache.shape[2])]
)
def replace_tokens_backward(dy, cache):
    """Returns (dx, dtoken): a replaced token's gradient goes to the one that took its place, and adds up there."""
    xp, replaced = array_module(dy), cache.mask[..., None]
    return xp.where(replaced, 0, dy), sum_rows(xp.where(replaced, dy, 0))[None, None]


class PlaceTokensCache(NamedTuple):
    index: Array  # (B, n)
    shape: tuple  # (B, N, D) of the result


@operation(arrays="x token", any_dtype="index")
def place_tokens(x, token, index, count):
    """Put each sample's tokens `x` (B, n, D) at `index` (B, n) among `count` tokens, and `token` (1, 1, D) at all other
    places: (B, count, D). The inverse of `take_tokens`, with a mask token in the gaps.

    He et al. 2022, "Masked autoencoders are scalable vision learners", section 3. Derived in notebooks/15.
    """
    check_token("place_tokens", x, token)
    if not is_int(count) or count < x.shape[1]:
        raise ValueError(f"place_tokens: expected count as an int of at least {x.shape[1]}, got {count!r}")
    xp = array_module(x)
    y = xp.empty((len(x), count, x.shape[2]), xp.result_type(x, token))
    check_index("place_tokens", index, y)
    if index.shape[1] != x.shape[1]:
        raise ValueError(f"place_tokens: expected an index {x.shape[:2]} for tokens {x.shape}, got {index.shape}")
    y[...] = token
    y[rows_of(index), index] = x
    return y, PlaceTokensCache(index, y.shape)


@backward_of(place_tokens, result=lambda cache: cache.shape, parameters=lambda cache: [(1, 1, cache.shape[2])])
def place_tokens_backward(dy, cache):
    """Returns (dx, dtoken): each token's gradient is at its place, and the mask token's the sum over all others."""
    rows = rows_of(cache.index)
    others = dy.copy()
    others[rows, cache.index] = 0
    return dy[rows, cache.index], sum_rows(others)[None, None]


class MeanSquaredErrorCache(NamedTuple):
    difference: Array  # of x's shape


@operation(any_dtype="targets")
def mean_squared_error(x, targets):
    """The mean of (x − targets)² over all numbers, a scalar; the targets get no gradient.

    He et al. 2022, "Masked autoencoders are scalable vision learners", section 3. Derived in notebooks/15.
    """
    if targets.shape != x.shape or not x.size or targets.dtype.kind != "f":
        raise ValueError(
            f"mean_squared_error: expected targets {x.shape} of floating-point numbers, and at least one, got "
            f"{targets.dtype} {targets.shape}"
        )
    difference = x - targets.astype(x.real.dtype, copy=False)
    return (difference * difference).sum() * (1 / x.size), MeanSquaredErrorCache(difference)


@backward_of(mean_squared_error, result=lambda cache: ())
def mean_squared_error_backward(dy, cache):
    """dx = dy · 2 (x − targets) / n, for n numbers."""
    return cache.difference * (dy * (2 / cache.difference.size))


def check_token(name, x, token):
    """Raise ValueError unless `x` is (B, N, D) and `token` (1, 1, D)."""
    if x.ndim != 3 or token.shape != (1, 1, x.shape[-1]):
        raise ValueError(f"{name}: expected x (B, N, D) and a token (1, 1, D), got {x.shape} and {token.shape}")
