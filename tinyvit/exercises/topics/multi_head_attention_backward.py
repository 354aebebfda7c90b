"""The gradients of multi-head self-attention."""

import numpy as np

from tinyvit.exercises.exercise import exercise
from tinyvit.exercises.topics.attention import attention
from tinyvit.exercises.topics.attention_backward import attention_backward
from tinyvit.exercises.topics.linear import linear, linear_backward
from tinyvit.exercises.topics.multi_head_attention import join_heads, multi_head_attention, split_heads


@exercise(forward=multi_head_attention)
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
