"""Scaled dot-product attention."""

from tinyvit.exercises.exercise import exercise, normal
from tinyvit.exercises.topics.softmax import softmax


@exercise(normal("BHMd", "BHNd", "BHNe"), "B H M N d e")
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
