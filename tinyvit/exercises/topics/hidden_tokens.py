"""Tokens put back in their places, with a mask token in the gaps."""

import numpy as np

from tinyvit.exercises.exercise import exercise, require_fit


def inputs(random, B, D, N, n):
    require_fit(n <= N)
    x, token = random.standard_normal((B, n, D)), random.standard_normal((1, 1, D))
    return x, token, random.random((B, N)).argsort(1)[:, :n], N


@exercise(inputs, "B D N=7,8 n=5,3,N,0")
def place_tokens(x, token, index, count):
    """Each sample's tokens at the places `index` says, among `count` of them, and the mask token everywhere else.

      x      (B, n, D)
      token  (1, 1, D), the mask token
      index  (B, n), places from 0 to count − 1
      count  N

    returns
      y  (B, N, D)
    """
    filled = np.repeat(np.repeat(token, count, 1), len(x), 0)
    filled[np.arange(len(x))[:, None], index] = x
    return filled


@exercise(forward=place_tokens)
def place_tokens_backward(dy, index):
    """The gradients of tokens x (B, n, D) that were put at the places `index` says, and of the mask token, which is in
    all other places.

      dy     (B, N, D), the gradient of the result
      index  (B, n)

    returns
      dx      (B, n, D)
      dtoken  (1, 1, D)
    """
    rows = np.arange(len(dy))[:, None]
    others = dy.copy()
    others[rows, index] = 0
    return dy[rows, index], others.sum((0, 1), keepdims=True)
