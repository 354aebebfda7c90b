"""Scaled dot-product attention."""

from tinyvit.exercises.exercise import Case, exercise, lesson, normal_arrays
from tinyvit.exercises.topics.softmax import softmax


def inputs(random, B, H, M, N, d, e):
    return normal_arrays(random, (B, H, M, d), (B, H, N, d), (B, H, N, e))


def large_scores(random):
    """Queries and keys with a part in common: the scores of a query differ by little, and are all near 1000."""
    q, k, v = inputs(random, 1, 2, 3, 4, 4, 5)
    q[..., 0], k[..., 0] = 2000.0, 1.0
    return q, k, v


SIZES = {"B": 2, "H": 3, "M": 4, "N": 5, "d": 6, "e": 7}, {"B": 3, "H": 1, "M": 4, "N": 2, "d": 5, "e": 6}


@exercise(inputs, SIZES, equal=dict.fromkeys("BHMNde", 3), traps=(Case("scores near 1000", large_scores),))
def attention(q, k, v):
    """Average the values by the softmax of each query's scores, scaled by 1/√d (Vaswani et al. 2017, eq. 1).

      q  (B, H, M, d), M queries
      k  (B, H, N, d), N keys
      v  (B, H, N, e), a value for each key

    returns
      heads  (B, H, M, e)
    """
    scores = q @ k.mT * q.shape[-1] ** -0.5
    probs = softmax(scores)
    return probs @ v


lesson(attention, """
Package: tinyvit.functional.attention.attention

Hints:
  Of M queries and N keys, how many scores are there? Which axis has to add up to 1 after the softmax?
  (M, d) times (d, N), scaled; a softmax; times (N, e).
  y = softmax(q kᵀ / √d) v, the softmax over the keys; kᵀ exchanges the last two axes only.

Steps:
  scores  attention.scores    q kᵀ / √d
  probs   attention.probs     softmax(scores)
  heads   attention.returned  probs v

Mistakes:
  the scale 1/√d is forgotten
    A sum of d products grows as √d; dividing by √d keeps the softmax from saturating.
    `q.shape[-1] ** -0.5` → `1`
  the row's maximum is not subtracted
    exp(1000) overflows, and the result is NaN. Subtracting each query's own largest score changes nothing on paper,
    since it cancels, and keeps every exp between 0 and 1.
    softmax: ` - x.max(-1, keepdims=True)` → ``
  scaled by 1/d
    Divide the scores by the square root of d.
    `q.shape[-1] ** -0.5` → `q.shape[-1] ** -1.0`
  multiplied by √d
    The scores are divided by √d.
    `q.shape[-1] ** -0.5` → `q.shape[-1] ** 0.5`
  scaled by the number of keys
    d is the width of queries and keys, the length of the sum in a score.
    `q.shape[-1]` → `k.shape[-2]`
  scaled by the width of the values
    d is the width of queries and keys, the length of the sum in a score.
    `q.shape[-1]` → `v.shape[-1]`
  the scale is 1/√(H·d) in place of 1/√d
    A score is a sum over one head's d numbers, not over those of all heads.
    `q.shape[-1]` → `(q.shape[1] * q.shape[-1])`
  the scale is 1/√H in place of 1/√d
    A score is a sum over the d numbers of a head; the number of heads does not matter.
    `q.shape[-1]` → `q.shape[1]`
  scaled after the softmax
    The scores are scaled; the probabilities add up to 1 as they are.
    `q.shape[-1] ** -0.5` → `1`
    `probs @ v` → `probs * q.shape[-1] ** -0.5 @ v`
  softmax over the queries
    The weights of each query sum to 1 over the keys: the softmax goes over the last axis.
    softmax: `-1` → `-2`
  softmax over the heads
    Heads know nothing of each other: the weights of each query sum to 1 over the keys, the last axis.
    softmax: `-1` → `1`
  the softmax's sum goes over the samples
    The weights of each query sum to 1 over the keys: maximum and sum both go over the last axis.
    softmax: `exps.sum(-1` → `exps.sum(0`
  the softmax's sum goes over the heads
    The weights of each query sum to 1 over the keys: maximum and sum both go over the last axis.
    softmax: `exps.sum(-1` → `exps.sum(1`
  the softmax's sum goes over the queries
    The weights of each query sum to 1 over the keys: maximum and sum both go over the last axis.
    softmax: `exps.sum(-1` → `exps.sum(-2`
  the exponent's sign is wrong
    The higher a score, the higher its weight: exp(s), not exp(−s).
    `q = -q`
  the softmax is forgotten
    The softmax turns scores into weights that are positive and add up to 1.
    `softmax(scores)` → `scores`
  k is not transposed
    A score is a query's product with a key: q kᵀ, (M, d) times (d, N).
    `k.mT` → `k`
  wrong transpose of k: all four axes
    With four axes .T reverses all of them; .mT exchanges the last two.
    `k.mT` → `k.T`
  the probabilities are transposed
    Rows are queries, columns keys: the product with v goes over the keys.
    `probs @ v` → `probs.mT @ v`
""")
