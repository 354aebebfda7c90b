"""Multi-head self-attention."""

import numpy as np

from tinyvit.exercises.domain import OVERFLOW, Case
from tinyvit.exercises.exercise import exercise
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


LARGE = "scores near 1000"


def split_heads(x, num_heads):
    B, N, D = x.shape
    return x.reshape(B, N, num_heads, D // num_heads).transpose(0, 2, 1, 3)    # (B, H, N, d)


def join_heads(x):
    B, H, N, d = x.shape
    return x.transpose(0, 2, 1, 3).reshape(B, N, H * d)


@exercise(
    inputs, "B N H d", "", equal="B=2 N=2 H=2 d=2",
    extra=(Case(LARGE, large_scores, tolerance=1e-8, hint=OVERFLOW),),
)
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
