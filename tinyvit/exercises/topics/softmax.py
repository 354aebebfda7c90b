"""The softmax and its gradient."""

import numpy as np

from tinyvit.exercises.exercise import Case, exercise, lesson


def inputs(random, **sizes):
    return (random.standard_normal(tuple(sizes.values())),)


def large_scores(random):
    return (random.standard_normal((2, 5)) + np.array([[1000.0], [-1000.0]]),)


TRAPS = (
    Case("scores of four dimensions", lambda random: inputs(random, B=2, H=3, M=4, N=5)),  # as in an attention
    Case("scores near 1000 and −1000", large_scores),
)


@exercise(inputs, ({"B": 3, "N": 4}, {"B": 1, "N": 7}), traps=TRAPS)
def softmax(x):
    """Turn every row of scores into probabilities: exp of each over the sum of exp over the row.

      x  (…, N), of any number of dimensions; rows lie along the last one

    returns
      probs  (…, N)
    """
    exps = np.exp(x - x.max(-1, keepdims=True))
    return exps / exps.sum(-1, keepdims=True)


lesson(softmax, """
Package: tinyvit.functional.softmax.softmax

Hints:
  exp(1000) is infinite. What may be subtracted from a whole row without changing its softmax?
  Exponentials divided by their sum, row by row.
  p = exp(x − m) / Σ exp(x − m), where m is the largest x of the row; keepdims.

Holds:
  probs: the rows should add up to 1: each exp is divided by the sum of its row
    `probs.sum(-1) - 1`
  probs: no probability may be negative: look at the exp
    `np.minimum(probs, 0)`

Mistakes:
  the row's maximum is not subtracted
    exp(1000) overflows and exp(−1000) is 0: the result is NaN. Subtracting the row's own maximum from it changes
    nothing on paper, since it cancels, and keeps every exp between 0 and 1.
    ` - x.max(-1, keepdims=True)` → ``
  one maximum for all rows
    A row far below the maximum of all others becomes zeros, and 0/0 is NaN. Each row has its own maximum.
    `x.max(-1, keepdims=True)` → `x.max()`
  the exponent's sign is wrong
    The higher a score, the higher its probability: exp(x − max).
    `x = -x`
  the maximum of each column
    It cancels only if all of a row get the same one: the maximum over the last axis.
    `x.max(-1, keepdims=True)` → `x.max(0)`
  summed over the columns
    A row's probabilities add up to 1: the sum goes over the last axis.
    `-1` → `0`
  summed over the whole array
    Every row has a sum of its own: axis=-1, with keepdims=True.
    `-1, keepdims=True` → ``
  not divided by the sum
    The exponentials of a row are not yet probabilities: they don't add up to 1.
    ` / exps.sum(-1, keepdims=True)` → ``
  not divided by the sum
    The exponentials of a row are not yet probabilities: they don't add up to 1.
    ` / exps.sum(-1, keepdims=True)` → ``
    ` - x.max(-1, keepdims=True)` → ``
  the logarithm of the softmax
    These are log probabilities; return the probabilities.
    `exps / exps.sum(-1, keepdims=True)` → `np.log(exps / exps.sum(-1, keepdims=True))`
  scores divided by their sum
    Without exp, negative scores give negative probabilities.
    `np.exp(x - x.max(-1, keepdims=True))` → `x`
""")


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


lesson(softmax_backward, """
Package: tinyvit.functional.softmax.softmax, tinyvit.functional.softmax.softmax_backward

Hints:
  The probabilities of a row always add up to 1. What comes out for a dy that is the same in the whole row?
  dx = p · (dy − something that is the same in the row).
  dxᵢ = pᵢ (dyᵢ − Σⱼ dyⱼ pⱼ), since ∂pⱼ/∂xᵢ = pⱼ (δᵢⱼ − pᵢ).

Holds:
  dx: the rows of dx should add up to 0, since adding a constant to a row of x changes nothing: the path through the
    sum is missing or wrong
    `dx.sum(-1)`

Mistakes:
  the row's maximum is not subtracted
    exp(1000) overflows and exp(−1000) is 0: the result is NaN. Subtracting the row's own maximum from it changes
    nothing on paper, since it cancels, and keeps every exp between 0 and 1.
    `softmax(x)` → `np.exp(x) / np.exp(x).sum(-1, keepdims=True)`
  one maximum for all rows
    A row far below the maximum of all others becomes zeros, and 0/0 is NaN. Each row has its own maximum.
    `softmax(x)` → `np.exp(x - x.max()) / np.exp(x - x.max()).sum(-1, keepdims=True)`
  the Jacobian is taken as diagonal
    p(1 − p) is how a probability moves with its own score. But each score moves all the probabilities of its row,
    through the sum that they are divided by: the Jacobian is a full matrix.
    `(dy - (dy * probs).sum(-1, keepdims=True))` → `dy * (1 - probs)`
  the diagonal of the Jacobian is missing
    Only − p pᵀ is there; a probability also changes with its own score.
    `(dy - ` → `(0 - `
  only dy times the probabilities
    That is the gradient of the numerator only; the sum in the denominator depends on x as well.
    ` - (dy * probs).sum(-1, keepdims=True)` → ``
  the sum is not weighted by the probabilities
    You subtract Σ dy; weight each dy by its probability.
    `(dy * probs)` → `dy`
  the sum is added
    The sum comes from the denominator: raising a score lowers all others. It is subtracted.
    `(dy - ` → `(dy + `
  the sum is not multiplied by the probabilities
    dy·p − Σ dy·p: the brackets are missing. Both terms have the factor p: p · (dy − Σ dy·p).
    `(dy - (dy * probs).sum(-1, keepdims=True))` → `dy - (dy * probs).sum(-1, keepdims=True)`
  dy and x are exchanged
    The arguments come in the order dy, x: first the gradient.
    `dy, x = x, dy`
  a mean in place of the sum
    The probabilities are weights that add up to 1: don't divide by their number.
    `.sum(-1` → `.mean(-1`
  summed over the columns
    A score changes the probabilities of its own row: sum over the last axis.
    `-1` → `0`
  summed over the whole array
    A score changes the probabilities of its own row: axis=-1, with keepdims=True.
    `-1, keepdims=True` → ``
  not multiplied by the probabilities
    The brackets are right; multiply them by p.
    `probs * (dy` → `(dy`
  scores in place of probabilities
    x holds the scores; take their softmax first.
    `softmax(x)` → `x`
""")
