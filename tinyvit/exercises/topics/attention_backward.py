"""The gradients of scaled dot-product attention."""

from tinyvit.exercises.exercise import exercise
from tinyvit.exercises.topics.attention import attention
from tinyvit.exercises.topics.softmax import softmax, softmax_backward


@exercise(forward=attention)
def attention_backward(dy, q, k, v):
    """The gradients of scaled dot-product attention, scale 1/√d.

      dy  (B, H, M, e), the gradient of the heads
      q   (B, H, M, d), M queries
      k   (B, H, N, d), N keys
      v   (B, H, N, e), a value for each key

    returns
      dq  (B, H, M, d)
      dk  (B, H, N, d)
      dv  (B, H, N, e)
    """
    scale = q.shape[-1] ** -0.5
    scores = q @ k.mT * scale
    dv = softmax(scores).mT @ dy
    dprobs = dy @ v.mT
    dscores = softmax_backward(dprobs, scores) * scale
    return dscores @ k, dscores.mT @ q, dv
