"""The gradients of multi-head self-attention."""

import numpy as np

from tinyvit.exercises.exercise import Case, exercise, lesson
from tinyvit.exercises.topics.attention import attention
from tinyvit.exercises.topics.attention_backward import attention_backward
from tinyvit.exercises.topics.linear import linear, linear_backward
from tinyvit.exercises.topics.multi_head_attention import (
    LARGE,
    join_heads,
    large_scores,
    multi_head_attention,
    split_heads,
)


# Rounding errors of scores near 1000 are multiplied by up to 2000.
@exercise(forward=multi_head_attention, traps=(Case(LARGE, large_scores, tolerance=1e-8),))
def multi_head_attention_backward(dy, x, qkv_weight, qkv_bias, proj_weight, num_heads):
    """The gradients of `multi_head_attention`.

      dy           (B, N, D), the gradient of y
      x            (B, N, D)
      qkv_weight   (3D, D): the rows of queries, keys and values, one after the other
      qkv_bias     (3D,)
      proj_weight  (D, D)
      num_heads    H; head h has the entries from h·d on of q, k and v, where d = D/H

    returns
      dx            (B, N, D)
      dqkv_weight   (3D, D)
      dqkv_bias     (3D,)
      dproj_weight  (D, D)
      dproj_bias    (D,)
    """
    qkv = linear(x, qkv_weight, qkv_bias)
    q, k, v = (split_heads(part, num_heads) for part in np.split(qkv, 3, -1))
    heads = join_heads(attention(q, k, v))
    dheads, dproj_weight, dproj_bias = linear_backward(dy, heads, proj_weight)
    dq, dk, dv = attention_backward(split_heads(dheads, num_heads), q, k, v)
    dqkv = np.concatenate([join_heads(part) for part in (dq, dk, dv)], -1)
    dx, dqkv_weight, dqkv_bias = linear_backward(dqkv, x, qkv_weight)
    return dx, dqkv_weight, dqkv_bias, dproj_weight, dproj_bias


lesson(multi_head_attention_backward, """
Package: tinyvit.nn.attention.Attention.forward, tinyvit.nn.attention.Attention.backward,
  tinyvit.functional.attention.attention_backward

Hints:
  Write the forward as a list of five steps. What is the list of the backward?
  projection's backward → split → attention's backward → join → backward of the linear layer of q, k and v.
  Put dq, dk, dv beside each other in the order of the forward, (B, N, 3D): dx = dqkv W, dW = Σ dqkvᵀ x.

Steps:
  proj   multi_head_attention_backward.dheads  dy W_proj, the gradient of the joined heads
  heads  multi_head_attention_backward.dqkv    dq, dk, dv, joined and beside each other, (B, N, 3D)
  qkv    multi_head_attention_backward.dx      dqkv W_qkv, the gradient of x

Places:
  proj: linear_backward 0
  qkv: linear_backward 1
  on the way back: split_heads 3, join_heads 1 2 3
  on the way forward: split_heads 0 1 2, join_heads 0

Holds:
  dproj_bias: dproj_bias should be dy, added up over all tokens
    `dproj_bias - dy.sum((0, 1))`
  dqkv_bias: the keys' part of dqkv_bias should be 0, since adding one vector to all keys changes nothing: the
    softmax, its gradient, or the order of q, k and v
    `np.split(dqkv_bias, 3)[1]`
  dqkv_bias: the values' part of dqkv_bias should be Σ dy @ proj_weight, since probabilities add up to 1
    `np.split(dqkv_bias, 3)[2] - dy.sum((0, 1)) @ proj_weight`
  dx: Σ x·dx should equal Σ qkv_weight·dqkv_weight: both are Σ dqkv·(x Wᵀ)
    `(dx * x).sum() - (dqkv_weight * qkv_weight).sum()`

Mistakes:
  the softmax's Jacobian is taken as diagonal
    Each score changes all probabilities of its query: the Jacobian is a full matrix.
    softmax_backward: `(dy - (dy * probs).sum(-1, keepdims=True))` → `dy * (1 - probs)`
  the scale 1/√d is forgotten on the way back
    The scores were scaled: their gradient is scaled, too.
    attention_backward: `scores) * scale` → `scores)`
  the scale 1/√d is forgotten
    The scores of each head are divided by √d.
    attention: `q.shape[-1] ** -0.5` → `1`
    attention_backward: `q.shape[-1] ** -0.5` → `1`
  the scale is 1/√(H·d) in place of 1/√d
    A score is a sum over one head's d numbers, not over all D = H·d.
    attention: `q.shape[-1] ** -0.5` → `(q.shape[1] * q.shape[-1]) ** -0.5`
    attention_backward: `q.shape[-1] ** -0.5` → `(q.shape[1] * q.shape[-1]) ** -0.5`
  the scale is 1/√H in place of 1/√d
    A score is a sum over the d numbers of a head; the number of heads does not matter.
    attention: `q.shape[-1] ** -0.5` → `q.shape[1] ** -0.5`
    attention_backward: `q.shape[-1] ** -0.5` → `q.shape[1] ** -0.5`
  the row's maximum is not subtracted
    exp(1000) overflows, and the result is NaN. Subtracting each query's own largest score changes nothing on paper,
    since it cancels, and keeps every exp between 0 and 1.
    softmax: ` - x.max(-1, keepdims=True)` → ``
  the joined heads' gradient is split by a reshape without transpose
    (B, N, D) is (B, N, H, d) in memory: reshape to that, then bring H before N by a transpose.
    `split_heads(dheads, num_heads)` → `dheads.reshape(q.shape)`
  the projection is forgotten on the way back
    Between y and the heads lies proj_weight.
    `split_heads(dheads, num_heads)` → `split_heads(dy, num_heads)`
  wrong transpose of proj_weight
    The forward multiplies by proj_weightᵀ, the backward by proj_weight.
    `split_heads(dheads, num_heads)` → `split_heads(dy @ proj_weight.T, num_heads)`
  dproj_weight is made of x
    The projection's input is the joined heads, not x.
    `linear_backward(dy, heads` → `linear_backward(dy, x`
  the joined heads' gradient is joined by a reshape
    dq, dk and dv are (B, H, N, d): bring N before H by a transpose, then reshape to (B, N, D).
    `join_heads(part)` → `part.reshape(x.shape)`
  the heads are split and joined by reshapes on the way back
    (B, N, D) is (B, N, H, d) in memory: a transpose stands between that and (B, H, N, d), there and back.
    `split_heads(dheads, num_heads)` → `dheads.reshape(q.shape)`
    `join_heads(part)` → `part.reshape(x.shape)`
  dq, dk and dv stand in another order in dqkv: queries and values exchanged
    dqkv has the order of qkv: queries, keys, values.
    `(dq, dk, dv)` → `(dv, dk, dq)`
  queries and values exchanged
    The first D rows of qkv_weight make the queries, the next the keys, the last the values.
    ` q, k, v = (` → ` v, k, q = (`
    `(dq, dk, dv)` → `(dv, dk, dq)`
  dq, dk and dv stand in another order in dqkv: queries and keys exchanged
    dqkv has the order of qkv: queries, keys, values.
    `(dq, dk, dv)` → `(dk, dq, dv)`
  queries and keys exchanged
    The first D rows of qkv_weight make the queries, the next the keys, the last the values.
    ` q, k, v = (` → ` k, q, v = (`
    `(dq, dk, dv)` → `(dk, dq, dv)`
  dq, dk and dv stand in another order in dqkv: keys and values exchanged
    dqkv has the order of qkv: queries, keys, values.
    `(dq, dk, dv)` → `(dq, dv, dk)`
  keys and values exchanged
    The first D rows of qkv_weight make the queries, the next the keys, the last the values.
    ` q, k, v = (` → ` q, v, k = (`
    `(dq, dk, dv)` → `(dq, dv, dk)`
  qkv is read in the order (H, 3, d)
    It is (3, H, d) in memory: first all heads' queries.
    `np.split(qkv, 3, -1)` → `np.moveaxis(qkv.reshape(*x.shape[:2], num_heads, 3, -1), 3, 0).reshape(3, *x.shape)`
    `np.concatenate([join_heads(part) for part in (dq, dk, dv)], -1)` →
      `np.stack((dq, dk, dv), 3).swapaxes(1, 2).reshape(*x.shape[:2], -1)`
  dqkv is put together in the order (H, 3, d)
    qkv was (3, H, d): first all heads' queries, then their keys, then their values.
    `np.concatenate([join_heads(part) for part in (dq, dk, dv)], -1)` →
      `np.stack((dq, dk, dv), 3).swapaxes(1, 2).reshape(*x.shape[:2], -1)`
  qkv_bias is forgotten where the forward is computed again
    q, k and v have a bias.
    `qkv_bias = 0 * qkv_bias`
  wrong transpose in dproj_weight
    Its rows are outputs, its columns inputs.
    `dqkv_bias, dproj_weight` → `dqkv_bias, dproj_weight.T`
  dx comes from the queries only
    Queries, keys and values all depend on x: add up the three gradients.
    `return dx` → `return join_heads(dq) @ np.split(qkv_weight, 3)[0]`
  the broadcast biases are not summed
    Each was added to every token of every sample: sum over both axes.
    linear_backward: `dy_rows.sum(0)` → `dy`
  the broadcast biases are summed over samples only
    Each was added to every token of every sample.
    linear_backward: `dy_rows.sum(0)` → `dy.sum(0)`
""")
