"""Attention by batched products on views, without copying anything N×N, or by kernels that write no scores.

Queries, keys and values are read where they lie, side by side in the output of one linear layer; heads and gradients
are written in the layout that the next layer reads. Rows of the scores start on boundaries of 16 bytes, as tensor
cores read them best, whatever the number of keys. In float32 the softmax is in place, as its backward is in
every dtype; in low precision scores are float32, and only the probabilities are rounded. The softmax adds a bias.

cuBLAS multiplies by the scale last, so q kᵀ itself must not overflow a float32, and not only q kᵀ · scale.

Without a bias, heads of the usual widths go to `tensor_attention` in low precision, and narrow ones to
`fused_attention` in float32: neither writes scores. So long sequences need no tiles there; elsewhere `tiled_attention`
is the reference implementation, in float32.
"""

from tinyvit.arrays import array_module
from tinyvit.functional.attention import AttentionCache, attention, attention_backward, check_shapes
from tinyvit.functional.heads import empty_gradients
from tinyvit.functional.sums import sum_to_shape
from tinyvit.functional.tiled_attention import TILE, check_tile, tiled_attention, tiled_attention_backward
from tinyvit.kernels.cuda import fused_attention, tensor_attention
from tinyvit.kernels.cuda.cast import cast
from tinyvit.kernels.cuda.products import can_multiply, multiply_batches
from tinyvit.kernels.cuda.source import KINDS, PACK_BYTES, TYPED, Source, blocks, contiguous, type_of
from tinyvit.kernels.cuda.through_float32 import backward_through_float32, forward_through_float32
from tinyvit.operands import LOW_PRECISION

SOURCE = Source("attention.cu", TYPED)
BLOCK = 256
WARPS = BLOCK // 32  # of a block: each has a row


def attention_cuda(q, k, v, bias=None, scale=None):
    if not is_supported(q, k, v, bias, scale):
        return attention_in_float32(q, k, v, bias, scale)
    check_shapes(q, k, v, bias)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    without_scores = kernels_without_scores(q, k, v, bias)
    if without_scores is not None:
        return without_scores.forward(q, k, v, scale)
    probs = probabilities(q, k, bias, scale)
    return heads_of(probs, v), AttentionCache(q, k, v, probs, scale, bias)


def tiled_attention_cuda(q, k, v, bias=None, scale=None, tile=TILE):
    if not is_supported(q, k, v, bias, scale) or kernels_without_scores(q, k, v, bias) is None:
        return tiled_attention_in_float32(q, k, v, bias, scale, tile)
    check_tile(q, tile)
    return attention_cuda(q, k, v, bias, scale)


def kernels_without_scores(q, k, v, bias):
    """The module whose kernels take these arrays and write no scores, or None."""
    if bias is None:
        for module in (tensor_attention, fused_attention):
            if module.fits(q, k, v):
                return module
    return None


def probabilities(q, k, bias, scale):
    """softmax(q kᵀ · scale + bias), with rows as `padded_rows` makes them."""
    B, H, Nq, Nk = *q.shape[:3], k.shape[2]
    scores = padded_rows((B, H, Nq, Nk), "float32", q)
    multiply_batches(as_operand(q), as_operand(k).mT, scores, alpha=scale)
    probs = scores if q.dtype == "float32" else padded_rows(scores.shape, q.dtype, q)
    SOURCE.launch(
        "attention_probs", blocks(B * H * Nq, WARPS), BLOCK, scores, probs, *strided_bias(bias), H, Nq, B * H * Nq, Nk,
        stride_of_rows(scores), T=type_of(probs),
    )  # fmt: skip
    return probs


def strided_bias(bias):
    """A bias as the kernel takes it: float32, with its four strides in numbers, 0 along what it is broadcast over."""
    if bias is None:
        return None, 0, 0, 0, 0
    bias = cast(bias, "float32")
    strides = [0 if side == 1 else stride // bias.itemsize for side, stride in zip(bias.shape, bias.strides)]
    return bias, *[0] * (4 - bias.ndim), *strides


def heads_of(probs, v):
    """probs v, (B, H, Nq, dv): heads side by side in memory."""
    B, H, Nq, _ = probs.shape
    y = array_module(v).empty((B, Nq, H, v.shape[-1]), v.dtype).transpose(0, 2, 1, 3)
    return multiply_batches(as_operand(probs), as_operand(v), y)


def attention_backward_cuda(dy, cache):
    """As `functional.attention_backward`; the bias has a float32 gradient, whatever its dtype."""
    q, k, v, probs, scale, bias = cache
    if not is_supported(q, k, v, None, scale) or not dy.dtype == q.dtype == probs.dtype:
        return reference_backward(attention_backward, dy, cache)
    _, _, dv = gradients = empty_gradients(q, k, v)
    dy, q, k, v = map(as_operand, (dy, q, k, v))
    multiply_batches(as_operand(probs).mT, dy, dv)
    dprobs = multiply_batches(dy, v.mT, padded_rows(probs.shape, probs.dtype, probs))
    return with_scores_gradients(gradients, dprobs, probs, q, k, scale, bias)


def with_scores_gradients(gradients, dprobs, probs, q, k, scale, bias):
    """(dq, dk, dv), and dbias if there is a bias, from what the probabilities get, which is overwritten."""
    probs = probs if rows_are_regular(probs) else contiguous(probs)
    rows, columns = probs.size // probs.shape[-1], probs.shape[-1]
    SOURCE.launch(
        "attention_dscores", blocks(rows, WARPS), BLOCK, dprobs, probs, rows, columns, stride_of_rows(dprobs),
        stride_of_rows(probs), T=type_of(probs),
    )  # fmt: skip
    multiply_batches(dprobs, k, gradients[0], alpha=scale)
    multiply_batches(dprobs.mT, q, gradients[1], alpha=scale)
    return gradients if bias is None else gradients.with_bias(sum_to_shape(cast(dprobs, "float32"), bias.shape))


def is_supported(q, k, v, bias, scale):
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
    return backward_through_float32(backward.reference, inputs=3)(dy, cache)


def padded_rows(shape, dtype, like):
    """A new array (..., N) whose rows start on boundaries of 16 bytes, in `dtype` and in the dtype of `like`."""
    pack = PACK_BYTES // like.itemsize
    return array_module(like).empty((*shape[:-1], blocks(shape[-1], pack) * pack), dtype)[..., : shape[-1]]


def stride_of_rows(x):
    """How many numbers after a row of x (B, H, N, M) the next one starts."""
    return x.strides[2] // x.itemsize


def rows_are_regular(x):
    """Whether the rows of x (B, H, N, M) are contiguous and all start equally far apart."""
    (_, H, N, _), (of_sample, of_head, of_row, of_number) = x.shape, x.strides
    return of_number == x.itemsize and of_head == N * of_row and of_sample == H * of_head


def as_operand(x):
    """`x` itself if cuBLAS can read it where it lies, else a copy."""
    return x if can_multiply(x) else contiguous(x)


attention_in_float32 = forward_through_float32(attention.reference)
tiled_attention_in_float32 = forward_through_float32(tiled_attention.reference)
for kind in KINDS:
    attention.register(kind, attention_cuda)
    attention_backward.register(kind, attention_backward_cuda)
    tiled_attention.register(kind, tiled_attention_cuda)
    tiled_attention_backward.register(kind, backward_through_float32(tiled_attention_backward.reference, inputs=3))
