"""The softmax and its gradient."""

import numpy as np

from tinyvit.exercises.domain import Case
from tinyvit.exercises.exercise import exercise


def inputs(random, **sizes):
    return (random.standard_normal(tuple(sizes.values())),)


# As in an attention.
ONE = Case("a single row", lambda random: inputs(random, N=5))
FOUR = Case("scores of four dimensions", lambda random: inputs(random, B=2, H=3, M=4, N=5))


@exercise(inputs, "B N", extra=(ONE, FOUR))
def softmax(x):
    """Turn every row of scores into probabilities: exp of each over the sum of exp over the row.

      x  (…, N), of any number of dimensions; rows lie along the last one

    returns
      probs  (…, N)
    """
    exps = np.exp(x - x.max(-1, keepdims=True))
    return exps / exps.sum(-1, keepdims=True)


@exercise(forward=softmax)
def softmax_backward(dy, x):
    """The gradient of the softmax of every row.

      dy  (…, N), the gradient of the probabilities
      x   (…, N), the scores, of any number of dimensions; rows lie along the last one

    returns
      dx  (…, N)
    """
    probs = softmax(x)
    return probs * (dy - (dy * probs).sum(-1, keepdims=True))
