"""Scaled dot-product attention."""

from tinyvit.exercises.exercise import Case, exercise, normal
from tinyvit.exercises.topics.softmax import softmax

QKV = normal("BHMd", "BHNd", "BHNe")


def large_scores(random):
    """Queries and keys with a part in common: the scores of a query differ by little, and are all near 1000."""
    q, k, v = QKV(random, B=1, H=2, M=3, N=4, d=4, e=5)
    q[..., 0], k[..., 0] = 2000.0, 1.0
    return q, k, v


SIZES = "B=2 H=3 M=4 N=5 d=6 e=7", "B=3 H=1 M=4 N=2 d=5 e=6"


@exercise(QKV, SIZES, equal="B=3 H=3 M=3 N=3 d=3 e=3", traps=(Case("scores near 1000", large_scores),))
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
