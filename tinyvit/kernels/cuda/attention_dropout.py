"""Attention with dropout on its probabilities: the products of `attention`, and the mask of `dropout`.

Scores, probabilities and what is kept of them are in memory, so no fused kernel takes part.
"""

from tinyvit.arrays import array_module
from tinyvit.functional.attention import (
    AttentionDropoutCache,
    attention_dropout,
    attention_dropout_backward,
    check_shapes,
)
from tinyvit.functional.dropout import dropout, dropout_backward
from tinyvit.functional.heads import empty_gradients
from tinyvit.kernels.cuda.attention import (
    as_operand,
    heads_of,
    is_supported,
    probabilities,
    reference_backward,
    with_scores_gradients,
)
from tinyvit.kernels.cuda.products import multiply_batches
from tinyvit.kernels.cuda.source import KINDS
from tinyvit.kernels.cuda.through_float32 import forward_through_float32


def attention_dropout_cuda(q, k, v, bias=None, scale=None, rate=0.0, key=None):
    if not is_supported(q, k, v, bias, scale):
        return attention_dropout_in_float32(q, k, v, bias, scale, rate, key)
    check_shapes(q, k, v, bias)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    probs = probabilities(q, k, bias, scale)
    kept, c_dropout = dropout(probs, rate, key)
    return heads_of(kept, v), AttentionDropoutCache(q, k, v, probs, kept, c_dropout, scale, bias)


def attention_dropout_backward_cuda(dy, cache):
    """As `functional.attention_dropout_backward`; the bias has a float32 gradient, whatever its dtype."""
    q, k, v, probs, kept, c_dropout, scale, bias = cache
    if not is_supported(q, k, v, None, scale) or not dy.dtype == q.dtype == probs.dtype:
        return reference_backward(attention_dropout_backward, dy, cache)
    _, _, dv = gradients = empty_gradients(q, k, v)
    dy, q, k, v = map(as_operand, (dy, q, k, v))
    multiply_batches(as_operand(kept).mT, dy, dv)
    dkept = multiply_batches(dy, v.mT, array_module(kept).empty(kept.shape, kept.dtype))
    return with_scores_gradients(gradients, dropout_backward(dkept, c_dropout), probs, q, k, scale, bias)


attention_dropout_in_float32 = forward_through_float32(attention_dropout.reference)
for kind in KINDS:
    attention_dropout.register(kind, attention_dropout_cuda)
    attention_dropout_backward.register(kind, attention_dropout_backward_cuda)
