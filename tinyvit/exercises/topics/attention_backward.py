"""The gradients of scaled dot-product attention."""

from tinyvit.exercises.exercise import Case, exercise, lesson
from tinyvit.exercises.topics.attention import attention, large_scores
from tinyvit.exercises.topics.softmax import softmax, softmax_backward


# Rounding errors of scores near 1000 are 1000 times as large, and depend on the order of operations.
@exercise(forward=attention, traps=(Case("scores near 1000", large_scores, tolerance=1e-8),))
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


lesson(attention_backward, """
Package: tinyvit.functional.attention.attention, tinyvit.functional.attention.attention_backward

Hints:
  Two products with a softmax between them. Which is undone first?
  dv and dprobs from the last product; dscores by the softmax's backward; dq and dk from the first product.
  dv = pᵀ dy, dp = dy vᵀ, ds = p (dp − Σ dp p), dq = ds k / √d, dk = dsᵀ q / √d.

Steps:
  dv       attention_backward.dv           probsᵀ dy
  dprobs   attention_backward.dprobs       dy vᵀ
  dscores  softmax_backward.returned       of q kᵀ / √d, through the softmax
  dq       attention_backward.returned[0]  dscores k / √d
  dk       attention_backward.returned[1]  dscoresᵀ q / √d

Holds:
  dk: dk should add up to 0 over the keys, since adding one vector to all keys changes nothing: the path through the
    softmax's sum is missing or wrong
    `dk.sum(-2)`
  dv: dv should add up over the keys to what dy adds up to over the queries, since probabilities add up to 1
    `dv.sum(-2) - dy.sum(-2)`
  dq: Σ q·dq should equal Σ k·dk in each head, since scores hold q and k alike: a factor, or the keys in dq
    `(dq * q).sum((-2, -1)) - (dk * k).sum((-2, -1))`

Mistakes:
  the scale 1/√d is forgotten on the way back
    The scores were scaled: their gradient is scaled, too.
    attention_backward: `scores) * scale` → `scores)`
  the scale 1/√d is forgotten
    A sum of d products grows as √d; dividing by √d keeps the softmax from saturating.
    `q.shape[-1] ** -0.5` → `1`
  the scale 1/√d is forgotten where the probabilities are computed
    It is there in the backward, but the probabilities need it as well.
    `k.mT * scale` → `k.mT`
  the scale is 1/√(H·d) in place of 1/√d
    A score is a sum over one head's d numbers, not over those of all heads.
    `q.shape[-1]` → `(q.shape[1] * q.shape[-1])`
  the scale is 1/√H in place of 1/√d
    A score is a sum over the d numbers of a head; the number of heads does not matter.
    `q.shape[-1]` → `q.shape[1]`
  divided by the scale on the way back
    The scores were multiplied by 1/√d, so their gradient is multiplied by it as well, not divided.
    `scores) * scale` → `scores) / scale`
  the scale is applied twice
    Once is enough: if dscores is scaled, dq and dk are not to be scaled again.
    `scores) * scale` → `scores) * scale**2`
  the row's maximum is not subtracted
    exp(1000) overflows, and the result is NaN. Subtracting each query's own largest score changes nothing on paper,
    since it cancels, and keeps every exp between 0 and 1.
    softmax: ` - x.max(-1, keepdims=True)` → ``
  the softmax's Jacobian is taken as diagonal
    Each score changes all probabilities of its query: the Jacobian is a full matrix.
    softmax_backward: `(dy - (dy * probs).sum(-1, keepdims=True))` → `dy * (1 - probs)`
  a mean in place of the softmax's sum
    The probabilities are weights that add up to 1: don't divide by their number.
    softmax_backward: `.sum(` → `.mean(`
  the softmax's sum is not weighted by the probabilities
    You subtract Σ dprobs; weight each by its probability.
    softmax_backward: `(dy * probs)` → `dy`
  the softmax's sum is not subtracted
    dprobs times probs is half of the softmax's gradient.
    softmax_backward: ` - (dy * probs).sum(-1, keepdims=True)` → ``
  the softmax is forgotten on the way back
    Between dprobs and dscores lies the softmax.
    `softmax_backward(dprobs, scores)` → `dprobs`
  the softmax's sum over the heads
    The softmax went over the keys, the last axis, and so does the sum of its gradient.
    softmax_backward: `-1` → `1`
  softmax over the heads
    Heads know nothing of each other: the weights of each query sum to 1 over the keys, the last axis.
    softmax: `-1` → `1`
    softmax_backward: `-1` → `1`
  the softmax of the forward goes over the heads
    Heads know nothing of each other: the weights of each query sum to 1 over the keys, the last axis.
    softmax: `-1` → `1`
  the softmax's sum is added
    Raising a score lowers all other probabilities: Σ dprobs·p is subtracted.
    softmax_backward: `(dy - ` → `(dy + `
  the softmax's sum is not multiplied by the probabilities
    Both terms have the factor p: p · (dprobs − Σ dprobs·p).
    softmax_backward: `(dy - (dy * probs).sum(-1, keepdims=True))` → `dy - (dy * probs).sum(-1, keepdims=True)`
  the softmax's sum over the queries
    The softmax went over the keys, the last axis, and so does the sum of its gradient.
    softmax_backward: `-1` → `-2`
  wrong transpose in dk
    dk is (N, d): the gradient of a key is a sum over all queries.
    `dscores.mT @ q` → `dscores @ q`
  wrong transpose in dq
    dq is (M, d): the gradient of a query is a sum over all keys.
    `dscores @ k` → `dscores.mT @ k`
  wrong transpose in dv
    dv is (N, e): the gradient of a value is a sum over all queries.
    `softmax(scores).mT` → `softmax(scores)`
  wrong transpose of v in dprobs
    dprobs is (M, N): dy times vᵀ.
    `v.mT` → `v`
  q and k exchanged
    A query's gradient is a sum of keys, a key's a sum of queries.
    `dscores @ k, dscores.mT @ q` → `dscores @ q, dscores.mT @ k`
  scores in place of probabilities in dv
    The values were weighted by the probabilities.
    `softmax(scores).mT` → `scores.mT`
""")
