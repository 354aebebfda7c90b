"""Tokens beside the patches, class token and registers, and what is read off the tokens at the end."""

from typing import NamedTuple

import numpy as np

from tinyvit.arrays import Array, array_module
from tinyvit.dispatch import backward_of, operation
from tinyvit.functional.sums import sum_first
from tinyvit.functional.windows import is_int


class PrependTokenCache(NamedTuple):
    shape: tuple  # (B, N, D) of the tokens that came in


def prepended_shape(cache):
    B, N, D = cache.shape
    return B, N + 1, D


@operation(arrays="x token")
def prepend_token(x, token):
    """Put the class token (1, 1, D) in front of the tokens `x` (B, N, D): (B, N+1, D).

    Dosovitskiy et al. 2021, eq. 1. See notebooks/01.
    """
    if x.ndim != 3 or token.shape != (1, 1, x.shape[-1]):
        raise ValueError(f"prepend_token: expected x (B, N, D) and a token (1, 1, D), got {x.shape} and {token.shape}")
    xp = array_module(x)
    repeated = xp.broadcast_to(token, (x.shape[0], 1, x.shape[-1]))
    return xp.concatenate([repeated, x], axis=1), PrependTokenCache(x.shape)


@backward_of(prepend_token, result=prepended_shape, parameters=lambda cache: [(1, 1, cache.shape[2])])
def prepend_token_backward(dy, cache):
    """Returns (dx, dtoken): every sample had the same class token, so its gradient is their sum."""
    return dy[:, 1:], sum_first(dy[:, :1])[None]


class InsertTokensCache(NamedTuple):
    shape: tuple  # (B, N, D) of the tokens that came in
    at: int
    count: int    # n


def inserted_shape(cache):
    B, N, D = cache.shape
    return B, N + cache.count, D


@operation(arrays="x token")
def insert_tokens(x, token, at=1):
    """Put the tokens `token` (1, n, D) behind the first `at` tokens of every sample of `x` (B, N, D): (B, N+n, D).

    Registers, which take part in attention and are then thrown away: Darcet et al. 2024, "Vision transformers need
    registers". See notebooks/12.
    """
    if x.ndim != 3 or token.ndim != 3 or token.shape[::2] != (1, x.shape[-1]):
        raise ValueError(f"insert_tokens: expected x (B, N, D) and token (1, n, D), got {x.shape} and {token.shape}")
    if not is_int(at) or not 0 <= at <= x.shape[1]:
        raise ValueError(f"insert_tokens: expected at from 0 to {x.shape[1]}, the number of tokens, got {at!r}")
    xp = array_module(x)
    repeated = xp.broadcast_to(token, (x.shape[0], *token.shape[1:]))
    y = xp.concatenate([x[:, :at], repeated, x[:, at:]], axis=1)
    return y, InsertTokensCache(x.shape, at, token.shape[1])


@backward_of(
    insert_tokens, result=inserted_shape, parameters=lambda cache: [(1, cache.count, cache.shape[2])]
)
def insert_tokens_backward(dy, cache):
    """Returns (dx, dtoken): every sample had the same tokens, so their gradient is the sum over samples."""
    _, at, count = cache
    dx = array_module(dy).concatenate([dy[:, :at], dy[:, at + count :]], axis=1)
    return dx, sum_first(dy[:, at : at + count])[None]


class PoolTokenCache(NamedTuple):
    shape: tuple  # of the tokens that came in


@operation(any_dtype="x")
def pool_token(x):
    """Read the class token off the tokens `x` (B, N+1, D): (B, D).

    Dosovitskiy et al. 2021, eq. 4. Derived in notebooks/05.
    """
    check_tokens("pool_token", x, 1)
    return x[:, 0], PoolTokenCache(x.shape)


@backward_of(pool_token, result=lambda cache: (cache.shape[0], *cache.shape[2:]))
def pool_token_backward(dy, cache):
    """Only the class token was read, so only it gets a gradient."""
    dx = array_module(dy).zeros(cache.shape, dy.dtype)
    dx[:, 0] = dy
    return dx


class FirstTokensCache(NamedTuple):
    shape: tuple  # of the tokens that came in
    count: int


@operation(any_dtype="x")
def first_tokens(x, count=2):
    """The first `count` tokens of each sample of `x` (B, N, D), side by side: (B, count · D).

    Class and distillation token: Touvron et al. 2021, "Training data-efficient image transformers & distillation
    through attention", section 4.
    """
    if not is_int(count) or count < 1:
        raise ValueError(f"first_tokens: expected count as an int of at least 1, got {count!r}")
    check_tokens("first_tokens", x, count)
    return x[:, :count].reshape(len(x), count * x.shape[2]), FirstTokensCache(x.shape, count)


@backward_of(first_tokens, result=lambda cache: (cache.shape[0], cache.count * cache.shape[2]))
def first_tokens_backward(dy, cache):
    """Only the first tokens were read, so only they get a gradient."""
    (B, N, D), count = cache
    dx = array_module(dy).zeros((B, N, D), dy.dtype)
    dx[:, :count] = dy.reshape(B, count, D)
    return dx


class PoolMeanCache(NamedTuple):
    shape: tuple  # of the tokens that came in
    prefix: int


@operation
def pool_mean(x, prefix=1):
    """Average the patch tokens of `x` (B, prefix+N, D), leaving out the first `prefix` tokens: (B, D).

    Derived in notebooks/05.
    """
    check_tokens("pool_mean", x, prefix + 1)
    return x[:, prefix:].mean(1), PoolMeanCache(x.shape, prefix)


@backward_of(pool_mean, result=lambda cache: (cache.shape[0], *cache.shape[2:]))
def pool_mean_backward(dy, cache):
    """Each of the N patches contributed 1/N of itself."""
    shape, prefix = cache
    dx = array_module(dy).zeros(shape, dy.dtype)
    dx[:, prefix:] = dy[:, None] * (1 / (shape[1] - prefix))
    return dx


class TakeTokensCache(NamedTuple):
    index: Array  # (B, n)
    shape: tuple  # of the tokens that came in


@operation(any_dtype="x index")
def take_tokens(x, index):
    """Gather the tokens at `index` (B, n), all different, from each sample of `x` (B, N, D): (B, n, D).

    He et al. 2022, "Masked autoencoders are scalable vision learners", section 3.
    """
    check_index("take_tokens", index, x)
    return x[rows_of(index), index], TakeTokensCache(index, x.shape)


@backward_of(take_tokens, result=lambda cache: (*cache.index.shape, *cache.shape[2:]))
def take_tokens_backward(dy, cache):
    """Tokens that were left out get no gradient."""
    index, shape = cache
    dx = array_module(dy).zeros(shape, dy.dtype)
    dx[rows_of(index), index] = dy
    return dx


def check_tokens(name, x, least):
    """Raise ValueError unless `x` is (B, N, D), with so many tokens at least."""
    if x.ndim != 3 or x.shape[1] < least:
        raise ValueError(f"{name}: expected x (B, N, D) of at least {least} tokens, got {x.shape}")


def check_index(name, index, x):
    """Raise ValueError unless an index (B, n) fits the tokens; on a GPU only its shape is looked at."""
    if index.dtype.kind not in "iu" or x.ndim < 2 or index.ndim != 2 or len(index) != len(x):
        raise ValueError(
            f"{name}: expected an index ({len(x)}, n) for tokens {x.shape}, got {index.dtype} {index.shape}; take ints"
        )
    if array_module(index) is np and index.size:
        least, most = index.min(), index.max()
        if least < 0 or most >= x.shape[1]:
            raise ValueError(f"{name}: expected an index from 0 to {x.shape[1] - 1}, got {least} to {most}")
        in_order = np.sort(index)
        if (in_order[:, 1:] == in_order[:, :-1]).any():
            raise ValueError(f"{name}: expected every token at most once in a sample's index, got one twice")


def rows_of(index):
    """The number of the sample beside each entry of an index (B, n): (B, 1)."""
    return array_module(index).arange(len(index))[:, None]
