"""The softmax and its gradient."""

import numpy as np

from tinyvit.exercises.exercise import Case, exercise


def inputs(random, **sizes):
    return (random.standard_normal(tuple(sizes.values())),)


def large_scores(random):
    return (random.standard_normal((2, 5)) + np.array([[1000.0], [-1000.0]]),)


TRAPS = (
    Case("scores of four dimensions", lambda random: inputs(random, B=2, H=3, M=4, N=5)),  # as in an attention
    Case("scores near 1000 and −1000", large_scores),
)


@exercise(inputs, ("B=3 N=4", "B=1 N=7"), traps=TRAPS)
def softmax(x):
    """Turn every row of scores into probabilities: exp of each over the sum of exp over the row.

      x  (…, N), of any number of dimensions; rows lie along the last one

    returns
      probs  (…, N)
    """
    exps = np.exp(x - x.max(-1, keepdims=True))
    return exps / exps.sum(-1, keepdims=True)


@exercise(forward=softmax, traps=TRAPS)
def softmax_backward(dy, x):
    """The gradient of the softmax of every row.

      dy  (…, N), the gradient of the probabilities
      x   (…, N), the scores, of any number of dimensions; rows lie along the last one

    returns
      dx  (…, N)
    """
    probs = softmax(x)
    return probs * (dy - (dy * probs).sum(-1, keepdims=True))
