"""Multi-head self-attention."""

import numpy as np

from tinyvit.exercises.exercise import Case, exercise, lesson
from tinyvit.exercises.topics.attention import attention
from tinyvit.exercises.topics.linear import linear


def inputs(random, B, N, H, d):
    D = H * d
    shapes = (B, N, D), (3 * D, D), (3 * D,), (D, D), (D,)
    return *(random.standard_normal(shape) * 0.7 for shape in shapes), H


def large_scores(random):
    """Queries and keys have a part in common, from their biases: the scores of a query are all near 1000."""
    x, qkv_weight, qkv_bias, *rest, H = inputs(random, 2, 3, 2, 4)
    first = np.arange(H) * 4                                                 # entries of q, and D further on those of k
    for part, value in ((0, 2000.0), (8, 1.0)):
        qkv_weight[first + part], qkv_bias[first + part] = 0.0, value
    return x, qkv_weight, qkv_bias, *rest, H


SIZES = {"B": 2, "N": 5, "H": 3, "d": 4}, {"B": 1, "N": 3, "H": 2, "d": 5}
LARGE = "scores near 1000"


def split_heads(x, num_heads):
    B, N, D = x.shape
    return x.reshape(B, N, num_heads, D // num_heads).transpose(0, 2, 1, 3)    # (B, H, N, d)


lesson(split_heads, """
Mistakes:
  heads are split by a reshape without transpose
    (B, N, D) is (B, N, H, d) in memory; a transpose stands between that and (B, H, N, d), there and back.
    `N, num_heads, D // num_heads).transpose(0, 2, 1, 3)` → `num_heads, N, D // num_heads)`
  heads are interleaved
    D is H times d; you read it as d times H.
    `N, num_heads, D // num_heads).transpose(0, 2, 1, 3)` → `N, D // num_heads, num_heads).transpose(0, 3, 1, 2)`
""")


def join_heads(x):
    B, H, N, d = x.shape
    return x.transpose(0, 2, 1, 3).reshape(B, N, H * d)


lesson(join_heads, """
Mistakes:
  heads are joined by a reshape without transpose
    (B, N, D) is (B, N, H, d) in memory; a transpose stands between that and (B, H, N, d), there and back.
    `.transpose(0, 2, 1, 3)` → ``
""")


@exercise(inputs, SIZES, equal=dict.fromkeys("BNHd", 2), traps=(Case(LARGE, large_scores),))
def multi_head_attention(x, qkv_weight, qkv_bias, proj_weight, proj_bias, num_heads):
    """Project x to q, k and v, split them into H heads, attend in each (scale 1/√d), join the heads, project.

      x            (B, N, D)
      qkv_weight   (3D, D): the rows of queries, keys and values, one after the other
      qkv_bias     (3D,)
      proj_weight  (D, D)
      proj_bias    (D,)
      num_heads    H; head h has the entries from h·d on of q, k and v, where d = D/H

    returns
      y  (B, N, D)
    """
    qkv = linear(x, qkv_weight, qkv_bias)
    q, k, v = (split_heads(part, num_heads) for part in np.split(qkv, 3, -1))
    heads = join_heads(attention(q, k, v))
    return linear(heads, proj_weight, proj_bias)


lesson(multi_head_attention, """
Package: tinyvit.nn.attention.Attention.forward

Hints:
  Which numbers of a token's q belong to head 0? Where does the axis H have to stand, that heads don't mix?
  linear → split into q, k, v → heads (B, H, N, d) → attention → (B, N, D) → linear.
  Head h is columns h·d to (h+1)·d: (B, N, D) → (B, N, H, d) → (B, H, N, d). The way back undoes both.

Steps:
  qkv    multi_head_attention.qkv       x W_qkvᵀ + b, (B, N, 3D)
  probs  attention.probs                softmax(q kᵀ / √d), (B, H, N, N)
  heads  multi_head_attention.heads     probs v, joined to (B, N, D)
  proj   multi_head_attention.returned  heads W_projᵀ + b

Mistakes:
  the scale 1/√d is forgotten
    The scores of each head are divided by √d.
    attention: `q.shape[-1] ** -0.5` → `1`
  the scale is 1/√(H·d) in place of 1/√d
    A score is a sum over one head's d numbers, not over all D = H·d.
    attention: `q.shape[-1] ** -0.5` → `(q.shape[1] * q.shape[-1]) ** -0.5`
  the scale is 1/√H in place of 1/√d
    A score is a sum over the d numbers of a head; the number of heads does not matter.
    attention: `q.shape[-1] ** -0.5` → `q.shape[1] ** -0.5`
  scaled by 1/d
    Divide the scores by the square root of d.
    attention: `q.shape[-1] ** -0.5` → `q.shape[-1] ** -1.0`
  the row's maximum is not subtracted
    exp(1000) overflows, and the result is NaN. Subtracting each query's own largest score changes nothing on paper,
    since it cancels, and keeps every exp between 0 and 1.
    softmax: ` - x.max(-1, keepdims=True)` → ``
  one head
    Each head has its own softmax, over the scores of its own d numbers.
    `num_heads = 1`
  heads are split by a reshape without transpose
    (B, N, D) is (B, N, H, d) in memory: reshape to that, then bring H before N by a transpose.
    split_heads: `N, num_heads, D // num_heads).transpose(0, 2, 1, 3)` → `num_heads, N, D // num_heads)`
  heads are split and joined by a reshape without transpose
    (B, N, D) is (B, N, H, d) in memory: reshape to that, then bring H before N by a transpose; and back by another.
    split_heads: `N, num_heads, D // num_heads).transpose(0, 2, 1, 3)` → `num_heads, N, D // num_heads)`
    join_heads: `.transpose(0, 2, 1, 3)` → ``
  heads are joined by a reshape without transpose
    (B, H, N, d) has to become (B, N, H, d) by a transpose first.
    join_heads: `.transpose(0, 2, 1, 3)` → ``
  heads are interleaved
    D is H times d, with a head's numbers side by side; you read it as d times H.
    split_heads: `N, num_heads, D // num_heads).transpose(0, 2, 1, 3)` →
      `N, D // num_heads, num_heads).transpose(0, 3, 1, 2)`
  queries and keys exchanged
    The first D rows of qkv_weight make the queries, the next the keys.
    `q, k, v =` → `k, q, v =`
  queries and values exchanged
    The first D rows of qkv_weight make queries, the last values.
    `q, k, v =` → `v, k, q =`
  qkv is read in the order (H, 3, d)
    It is (3, H, d) in memory: first all heads' queries.
    `np.split(qkv, 3, -1)` → `np.moveaxis(qkv.reshape(*x.shape[:2], num_heads, 3, -1), 3, 0).reshape(3, *x.shape)`
  keys and values exchanged
    The second D rows of qkv_weight make the keys, the last the values.
    `q, k, v =` → `q, v, k =`
  the projection of the joined heads is forgotten
    The heads, side by side, go through proj_weight and proj_bias.
    `linear(heads, proj_weight, proj_bias)` → `heads`
  proj_weight is not transposed
    proj_weight is (out, in), as in every linear layer: y = x Wᵀ + b.
    `proj_weight = proj_weight.T`
  qkv_bias is forgotten
    Queries, keys and values have a bias.
    `qkv_bias = 0 * qkv_bias`
  proj_bias is forgotten
    The projection has a bias.
    `proj_bias = 0 * proj_bias`
""")
