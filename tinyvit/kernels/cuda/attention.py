"""Attention by batched products on views, without copying anything N×N.

Queries, keys and values are read where they lie, side by side in the output of one linear layer; heads and gradients
are written in the layout that the next layer reads. Rows of the scores start on boundaries of 16 bytes, so that the
softmax loads them in packs, whatever the number of keys. In float32 the softmax is in place, as its backward is in
every dtype; in low precision scores are float32, and only the probabilities are rounded. The softmax adds a bias.

cuBLAS multiplies by the scale last, so q kᵀ itself must not overflow a float32, and not only q kᵀ · scale.

Heads of the usual widths go to `tensor_attention` in low precision, and narrow ones to `fused_attention`: neither
writes scores.
"""

from tinyvit.backend import array_module
from tinyvit.dispatch import LOW_PRECISION
from tinyvit.functional.attention import AttentionCache, attention, attention_backward, check_shapes
from tinyvit.functional.heads import empty_gradients
from tinyvit.kernels.cuda import fused_attention, tensor_attention
from tinyvit.kernels.cuda.attention_bias import bias_gradient, strided_bias
from tinyvit.kernels.cuda.products import can_multiply, multiply_batches
from tinyvit.kernels.cuda.softmax import softmax_backward_rows, softmax_rows
from tinyvit.kernels.cuda.source import KINDS, PACK_BYTES, TYPED, Source, blocks, contiguous, type_of
from tinyvit.kernels.cuda.through_float32 import backward_through_float32, forward_through_float32

SOURCE = Source("attention.cu", TYPED)
BLOCK = 256
WARPS = BLOCK // 32  # of a block: each has a row


def attention_cuda(q, k, v, bias=None, scale=None):
    if not supported(q, k, v, bias, scale):
        plain = attention.reference if q.dtype == "float32" else reference_through_float32
        return plain(q, k, v, bias, scale)
    check_shapes(q, k, v, bias)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if tensor_attention.fits(q, k, v):
        return tensor_attention.forward(q, k, v, bias, scale)
    if fused_attention.fits(q, k, v):
        return fused_attention.forward(q, k, v, bias, scale)
    probs = probabilities(q, k, bias, scale)
    return heads_of(probs, v), AttentionCache(q, k, v, probs, scale, bias)


def probabilities(q, k, bias, scale):
    """softmax(q kᵀ · scale + bias), with rows as `padded_rows` makes them."""
    scores = padded_rows((*q.shape[:3], k.shape[2]), "float32", q)
    multiply_batches(as_operand(q), as_operand(k).mT, scores, alpha=scale)
    if bias is None and q.dtype == "float32":
        return softmax_rows(scores, scores, padded=are_padded(scores))
    return biased_softmax(scores, bias, q)


def heads_of(probs, v):
    """probs v, (B, H, Nq, dv): heads side by side in memory."""
    B, H, Nq, _ = probs.shape
    y = array_module(v).empty((B, Nq, H, v.shape[-1]), v.dtype).transpose(0, 2, 1, 3)
    return multiply_batches(as_operand(probs), as_operand(v), y)


def attention_backward_cuda(dy, cache):
    """As `functional.attention_backward`; the bias has a float32 gradient, whatever its dtype."""
    q, k, v, probs, scale, bias = cache
    if not supported(q, k, v, None, scale) or not dy.dtype == q.dtype == probs.dtype:
        return reference_backward(attention_backward, dy, cache)
    dq, dk, dv = gradients = empty_gradients(q, k, v)
    dy, q, k, v, probs = map(as_operand, (dy, q, k, v, probs))
    multiply_batches(probs.mT, dy, dv)
    dscores = padded_rows(probs.shape, probs.dtype, probs)  # dprobs, then dscores in place
    multiply_batches(dy, v.mT, dscores)
    softmax_backward_rows(dscores, probs, dscores, padded=are_padded(probs))
    multiply_batches(dscores, k, dq, alpha=scale)
    multiply_batches(dscores.mT, q, dk, alpha=scale)
    return gradients if bias is None else gradients.with_bias(bias_gradient(dscores, bias.shape))


def supported(q, k, v, bias, scale):
    """Whether the kernels take these: non-empty arrays with four axes and one dtype, and a number as the scale."""
    return (
        all(x.ndim == 4 and x.size and x.dtype == q.dtype for x in (q, k, v))
        and (bias is None or bias.dtype == q.dtype or bias.dtype == "float32")
        and (scale is None or isinstance(scale, (int, float)))
    )


def reference_backward(backward, dy, cache):
    """The backward where the reference implementation ran the forward; its cache is in float32."""
    dtype = str(cache.q.dtype)
    if dtype in LOW_PRECISION:
        raise ValueError(f"{backward.__name__}: expected dy in {dtype}, like the queries, got {dy.dtype}")
    in_float32 = backward_through_float32(backward.reference, inputs=3)
    return (in_float32 if str(dy.dtype) in LOW_PRECISION else backward.reference)(dy, cache)


def biased_softmax(scores, bias, like):
    """softmax(scores + bias) of float32 scores in the dtype of `like`; in place if that is float32.

    The scores are made by `padded_rows`. The bias may be None.
    """
    B, H, Nq, Nk = scores.shape
    probs = scores if like.dtype == "float32" else padded_rows(scores.shape, like.dtype, like)
    SOURCE.launch(
        "attention_probs", blocks(B * H * Nq, WARPS), BLOCK, scores, probs, *strided_bias(bias), H, Nq, B * H * Nq, Nk,
        scores.strides[2] // scores.itemsize, T=type_of(probs),
    )  # fmt: skip
    return probs


def padded_rows(shape, dtype, like):
    """A new array (..., N) whose rows start on boundaries of 16 bytes, in `dtype` and in the dtype of `like`."""
    return array_module(like).empty((*shape[:-1], padded(shape[-1], like.itemsize)), dtype)[..., : shape[-1]]


def padded(N, itemsize):
    pack = PACK_BYTES // itemsize
    return blocks(N, pack) * pack


def are_padded(x):
    """Whether rows (..., N), more than one, lie as `padded_rows` makes them: softmax may load what follows each row."""
    N, step, steps = x.shape[-1], padded(x.shape[-1], x.itemsize) * x.itemsize, []
    for side in reversed(x.shape[:-1]):
        steps.append(step)
        step *= side
    return x.size > N and x.strides == (*reversed(steps), x.itemsize)


def as_operand(x):
    """`x` itself if cuBLAS can read it where it lies, else a copy."""
    return x if can_multiply(x) else contiguous(x)


reference_through_float32 = forward_through_float32(attention.reference)
for kind in KINDS:
    attention.register(kind, attention_cuda)
    attention_backward.register(kind, attention_backward_cuda)
