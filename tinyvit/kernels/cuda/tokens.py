"""Tokens put beside the patches, each by a copy of what comes before and after them."""

from tinyvit.arrays import array_module
from tinyvit.functional.tokens import (
    InsertTokensCache,
    PrependTokenCache,
    insert_tokens,
    insert_tokens_backward,
    prepend_token,
    prepend_token_backward,
)
from tinyvit.kernels.cuda.column_sums import add_column_sums
from tinyvit.kernels.cuda.source import KINDS, contiguous


def prepend_token_cuda(x, token):
    if x.ndim != 3 or token.shape != (1, 1, x.shape[-1]):
        return prepend_token.reference(x, token)  # raises
    return insert(x, token, 0), PrependTokenCache(x.shape)


def prepend_token_backward_cuda(dy, cache, into):
    return remove(dy, 0, 1, into)


def insert_tokens_cuda(x, token, at=1):
    if x.ndim != 3 or token.ndim != 3 or token.shape[::2] != (1, x.shape[-1]) or not 0 <= at <= x.shape[1]:
        return insert_tokens.reference(x, token, at)  # raises
    return insert(x, token, at), InsertTokensCache(x.shape, at, token.shape[1])


def insert_tokens_backward_cuda(dy, cache, into):
    return remove(dy, cache.at, cache.count, into)


def insert(x, token, at):
    (B, N, D), n = x.shape, token.shape[1]
    y = array_module(x).empty((B, N + n, D), x.dtype)
    y[:, :at], y[:, at : at + n], y[:, at + n :] = x[:, :at], token.astype(x.dtype, copy=False), x[:, at:]
    return y


def remove(dy, at, n, into):
    """The gradients of the tokens that came in, and of the n tokens that were put behind the first `at` of them."""
    B, N, D = dy.shape
    dx = array_module(dy).empty((B, N - n, D), dy.dtype)
    dx[:, :at], dx[:, at:] = dy[:, :at], dy[:, at + n :]
    if into[0] is False:
        return dx, None
    return dx, add_column_sums(contiguous(dy[:, at : at + n]).reshape(B, n * D)).reshape(1, n, D)


for kind in KINDS:
    prepend_token.register(kind, prepend_token_cuda)
    prepend_token_backward.register(kind, prepend_token_backward_cuda)
    insert_tokens.register(kind, insert_tokens_cuda)
    insert_tokens_backward.register(kind, insert_tokens_backward_cuda)
