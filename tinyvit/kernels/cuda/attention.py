"""Attention by strided batched products on views, without a copy of anything N×N.

Queries, keys and values are read where they lie, side by side in what one linear layer made; heads and gradients are
written where the layers that follow want them. Rows of the scores start on boundaries of 16 bytes, so that the softmax
loads them in packs, whatever the number of keys. In float32 the softmax takes place where the scores lie, as its
backward does in every dtype; in low precision scores are float32, and only the probabilities are rounded.

Narrow heads without a bias go to `fused_attention`, which writes no scores.
"""

from tinyvit.backend import array_module
from tinyvit.functional.attention import AttentionCache, attention, attention_backward, check_shapes
from tinyvit.functional.dispatch import LOW_PRECISION
from tinyvit.functional.sums import sum_to_shape
from tinyvit.kernels.cuda import fused_attention
from tinyvit.kernels.cuda.cast import cast
from tinyvit.kernels.cuda.products import can_multiply, multiply_batches
from tinyvit.kernels.cuda.softmax import softmax_backward_rows, softmax_rows
from tinyvit.kernels.cuda.source import KINDS, PACK_BYTES, TYPES, Source, blocks, contiguous, type_of
from tinyvit.kernels.cuda.through_float32 import backward_through_float32, forward_through_float32

SOURCE = Source("attention.cu", [{"T": T} for T in TYPES.values() if T != "float"])
BLOCK = 256
ROWS = BLOCK // 32  # of a block: a warp each


def attention_cuda(q, k, v, bias=None, scale=None):
    if not are_plain(q, k, v, bias, scale):
        plain = attention.reference if q.dtype == "float32" else reference_through_float32
        return plain(q, k, v, bias, scale)
    check_shapes(q, k, v, bias)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if bias is None and fused_attention.fits(q, k, v):
        return fused_attention.forward(q, k, v, scale)
    (B, H, Nq, _), (Nk, dv) = q.shape, v.shape[2:]
    scores = padded_rows((B, H, Nq, Nk), "float32", q)
    if bias is not None:
        scores[...] = cast(bias, "float32")
    multiply_batches(as_operand(q), as_operand(k).mT, scores, alpha=scale, beta=0.0 if bias is None else 1.0)
    probs = softmax_in_place(scores) if q.dtype == "float32" else rounded_softmax(scores, q)
    y = array_module(q).empty((B, Nq, H, dv), q.dtype).transpose(0, 2, 1, 3)  # heads side by side
    multiply_batches(probs, as_operand(v), y)
    return y, AttentionCache(q, k, v, probs, scale, None if bias is None else bias.shape)


def attention_backward_cuda(dy, cache):
    """As `functional.attention_backward`; the bias has a float32 gradient, whatever its dtype."""
    q, k, v, probs, scale, bias_shape = cache
    if not are_plain(q, k, v, None, scale) or not dy.dtype == q.dtype == probs.dtype:
        return other_backward(dy, cache)
    dq, dk, dv = gradients_like(q, k, v)
    dy, q, k, v, probs = map(as_operand, (dy, q, k, v, probs))
    multiply_batches(probs.mT, dy, dv)
    dscores = padded_rows(probs.shape, probs.dtype, probs)  # the gradient of the probabilities, at first
    multiply_batches(dy, v.mT, dscores)
    softmax_backward_rows(dscores, probs, dscores, padded=are_padded(probs))
    multiply_batches(dscores, k, dq, alpha=scale)
    multiply_batches(dscores.mT, q, dk, alpha=scale)
    if bias_shape is None:
        return dq, dk, dv
    return dq, dk, dv, sum_to_shape(cast(dscores, "float32"), bias_shape)


def are_plain(q, k, v, bias, scale):
    """Whether the kernels are made for these: four axes, none of them empty, one dtype, and a number for a scale."""
    return (
        all(x.ndim == 4 and x.size and x.dtype == q.dtype for x in (q, k, v))
        and (bias is None or bias.dtype == q.dtype or bias.dtype == "float32")
        and (scale is None or isinstance(scale, (int, float)))
    )


def other_backward(dy, cache):
    """What the forward left to the plain text; a cache in float32, then."""
    dtype = str(cache.q.dtype)
    if dtype in LOW_PRECISION:
        raise ValueError(f"attention_backward: expected dy in {dtype}, like the queries, got {dy.dtype}")
    plain = attention_backward.reference
    return backward_through_float32(plain, inputs=3)(dy, cache) if str(dy.dtype) in LOW_PRECISION else plain(dy, cache)


def softmax_in_place(scores):
    return softmax_rows(scores, scores, padded=are_padded(scores))


def rounded_softmax(scores, like):
    """The softmax of float32 scores in the dtype of `like`, of low precision; both are made by `padded_rows`."""
    rows, probs = scores.size // scores.shape[-1], padded_rows(scores.shape, like.dtype, like)
    SOURCE.launch(
        "attention_probs", blocks(rows, ROWS), BLOCK, scores, probs, rows, scores.shape[-1],
        scores.strides[-2] // scores.itemsize, T=type_of(probs),
    )  # fmt: skip
    return probs


def padded_rows(shape, dtype, like):
    """A new array (..., N) whose rows start on boundaries of 16 bytes, also if it were one in the dtype of `like`."""
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


def gradients_like(q, k, v):
    """New arrays for dq, dk and dv: where they fit in one (B, N, 3, H, d), as the layer that they go to wants it."""
    xp = array_module(q)
    if q.shape == k.shape == v.shape:
        B, H, N, d = q.shape
        joined = xp.empty((B, N, 3, H, d), q.dtype).transpose(2, 0, 3, 1, 4)
        return joined[0], joined[1], joined[2]
    return [xp.empty(x.shape, x.dtype) for x in (q, k, v)]


def as_operand(x):
    """`x` itself if cuBLAS can read it where it lies, else a copy."""
    return x if can_multiply(x) else contiguous(x)


reference_through_float32 = forward_through_float32(attention.reference)
for kind in KINDS:
    attention.register(kind, attention_cuda)
    attention_backward.register(kind, attention_backward_cuda)
