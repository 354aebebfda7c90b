"""Tokens put back in their places, with a mask token in the gaps."""

import numpy as np

from tinyvit.exercises.exercise import exercise, lesson, normal_arrays


def inputs(random, B, N, n, D):
    return *normal_arrays(random, (B, n, D), (1, 1, D)), random.random((B, N)).argsort(1)[:, :n], N


@exercise(inputs, ({"B": 2, "N": 5, "n": 2, "D": 3}, {"B": 1, "N": 4, "n": 3, "D": 2}))
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


lesson(place_tokens, """
Package: tinyvit.functional.masking.place_tokens, tinyvit.functional.masking.place_tokens_backward

Hints:
  What does the result look like before any token is put into it?
  Begin with the mask token N times for each sample; then write each sample's tokens to its own places.
  y[b, index[b, i]] = x[b, i]: NumPy does it for all b and i with a column of row numbers beside `index`.

Mistakes:
  the first sample's places for all
    Each sample has places of its own: row b of `index`.
    `np.arange(len(x))[:, None], index` → `:, index[0]`
  mask tokens behind the others
    The tokens go to the places that `index` says, in any order.
    `np.arange(len(x))[:, None], index` → `:, : x.shape[1]`
  zeros in the gaps
    A place that no token goes to gets the mask token.
    `token = 0 * token`
  the mask token is added
    A token that is put in its place takes the mask token's.
    `] = x` → `] += x`
""")


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


lesson(place_tokens_backward, """
Package: tinyvit.functional.masking.place_tokens, tinyvit.functional.masking.place_tokens_backward

Hints:
  Which places of the result depend on token i of sample b? Which on the mask token?
  dx is taken from the places that `index` says; dtoken is a sum over all others, of all samples.
  dx[b, i] = dy[b, index[b, i]]; dtoken is the sum of dy with those places set to 0.

Mistakes:
  dtoken is summed over all places
    The mask token is only where no other token is.
    `others.sum` → `dy.sum`
  dtoken is a mean
    Every place that has the mask token adds its gradient: a sum.
    `others.sum((0, 1), keepdims=True)` → `others.sum((0, 1), keepdims=True) / (dy[..., 0].size - index.size)`
  dx without the order
    The gradient of token i of a sample is at the place that index[b, i] says.
    `return dy[rows, index]` → `return dy[:, : index.shape[1]]`
  dtoken is summed over the wrong places
    The mask token is where no other token is.
    `others.sum` → `dy[rows, index].sum`
""")
