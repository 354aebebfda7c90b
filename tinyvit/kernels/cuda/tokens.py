"""Tokens put beside the patches and read off, and the mean over the patches, each in one pass."""

from tinyvit.backend import array_module
from tinyvit.functional.tokens import (
    InsertTokensCache,
    PoolMeanCache,
    PoolTokenCache,
    PrependTokenCache,
    check_tokens,
    insert_tokens,
    insert_tokens_backward,
    pool_mean,
    pool_mean_backward,
    pool_token,
    pool_token_backward,
    prepend_token,
    prepend_token_backward,
)
from tinyvit.kernels.cuda.column_sums import add_column_sums
from tinyvit.kernels.cuda.source import KINDS, PACKED, Source, blocks, contiguous, pack_of, type_of

SOURCE = Source("tokens.cu", PACKED)
BLOCK = 256
WARP = 32
MOST_SAMPLES = 65535  # blocks along y; they go through more samples in turn


def prepend_token_cuda(x, token):
    if x.ndim != 3 or token.shape != (1, 1, x.shape[-1]):
        return prepend_token.reference(x, token)  # raises
    (B, N, D), x, token = x.shape, contiguous(x), contiguous(token)
    y = array_module(x).empty((B, N + 1, D), x.dtype)
    launch("prepend_token", (N + 1) * D, (x, token, y), B, N, D)
    return y, PrependTokenCache(x.shape)


def prepend_token_backward_cuda(dy, cache, into):
    dy, (B, N, D) = contiguous(dy), dy.shape
    dx = array_module(dy).empty((B, N - 1, D), dy.dtype)
    launch("copy_tokens", (N - 1) * D, (dy, dx), B, N * D, D, (N - 1) * D)
    return dx, None if into[0] is False else add_column_sums(first_tokens(dy)).reshape(1, 1, D)


def insert_tokens_cuda(x, token, at=1):
    if x.ndim != 3 or token.ndim != 3 or token.shape[::2] != (1, x.shape[-1]) or not 0 <= at <= x.shape[1]:
        return insert_tokens.reference(x, token, at)  # raises
    (B, N, D), x, token, n = x.shape, contiguous(x), contiguous(token), token.shape[1]
    y = array_module(x).empty((B, N + n, D), x.dtype)
    launch("insert_tokens", (N + n) * D, (x, token, y), B, N * D, at * D, n * D)
    return y, InsertTokensCache(x.shape, at, n)


def insert_tokens_backward_cuda(dy, cache, into):
    dy, ((B, N, D), at, n) = contiguous(dy), cache
    xp = array_module(dy)
    dx, dtoken = xp.empty((B, N, D), dy.dtype), xp.empty((B, n, D), dy.dtype)
    launch("remove_tokens", N * D, (dy, dx), B, N * D, at * D, n * D)
    if into[0] is False:
        return dx, None
    launch("copy_tokens", n * D, (dy, dtoken), B, (N + n) * D, at * D, n * D)
    return dx, add_column_sums(dtoken.reshape(B, n * D)).reshape(1, n, D)


def pool_token_cuda(x):
    check_tokens("pool_token", x, 1)
    return first_tokens(contiguous(x)), PoolTokenCache(x.shape)


def pool_token_backward_cuda(dy, cache):
    return spread(dy, cache.shape, 0, 1, 1.0)


def pool_mean_cuda(x, prefix=1):
    check_tokens("pool_mean", x, prefix + 1)
    x, (B, N, D) = contiguous(x), x.shape
    y = array_module(x).empty((B, D), x.dtype)
    scale, pack = 1 / (N - prefix), pack_of(D, x, y)
    grid = blocks(D, WARP * pack), min(B, MOST_SAMPLES)
    SOURCE.launch("mean_tokens", grid, BLOCK, x, y, B, N, prefix, D, scale, T=type_of(x), PACK=pack)
    return y, PoolMeanCache(x.shape, prefix)


def pool_mean_backward_cuda(dy, cache):
    shape, prefix = cache
    return spread(dy, shape, prefix, shape[1], 1 / (shape[1] - prefix))


def first_tokens(x):
    """x[:, 0] of contiguous tokens (B, N, D), contiguous: (B, D)."""
    B, N, D = x.shape
    y = array_module(x).empty((B, D), x.dtype)
    launch("copy_tokens", D, (x, y), B, N * D, 0, D)
    return y


def spread(dy, shape, first, last, scale):
    """Gradients (B, D) of samples as those of tokens (B, N, D): scale · dy from token `first` to `last`, else 0."""
    dy, (B, N, D) = contiguous(dy), shape
    dx = array_module(dy).empty(shape, dy.dtype)
    launch("spread_tokens", N * D, (dy, dx), B, D, first * D, last * D, N * D, scale)
    return dx


def launch(name, count, arrays, samples, *numbers):
    """A kernel for `count` numbers of each sample; the last axis of the last array is the width of a token."""
    pack = pack_of(arrays[-1].shape[-1], *arrays)
    grid = blocks(count, pack * BLOCK), min(samples, MOST_SAMPLES)
    SOURCE.launch(name, grid, BLOCK, *arrays, samples, *numbers, T=type_of(arrays[0]), PACK=pack)


for kind in KINDS:
    prepend_token.register(kind, prepend_token_cuda)
    prepend_token_backward.register(kind, prepend_token_backward_cuda)
    insert_tokens.register(kind, insert_tokens_cuda)
    insert_tokens_backward.register(kind, insert_tokens_backward_cuda)
    pool_token.register(kind, pool_token_cuda)
    pool_token_backward.register(kind, pool_token_backward_cuda)
    pool_mean.register(kind, pool_mean_cuda)
    pool_mean_backward.register(kind, pool_mean_backward_cuda)
