"""Operations that aren't worth a kernel of their own in bfloat16 and float16 run in float32, between two casts.

A rotation's angles need float32's digits in any case. Standardised filters, gates and the logits of a teacher are few
numbers beside the maps; for batch and group norm, pooling and ReLU no measurement has shown a kernel to pay.
"""

from inspect import signature

import numpy as np

from tinyvit.functional.batchnorm import batch_norm, batch_norm_running
from tinyvit.functional.conditions import embed_labels
from tinyvit.functional.contrastive import similarity
from tinyvit.functional.conv_transpose import conv_transpose2d
from tinyvit.functional.diffusion import add_noise
from tinyvit.functional.dino import l2_normalise
from tinyvit.functional.dot_products import dot_products
from tinyvit.functional.embedding import embedding
from tinyvit.functional.gathering import gather_batch
from tinyvit.functional.gelu import quick_gelu
from tinyvit.functional.groupnorm import group_norm, standardize_weight, standardize_weight_original
from tinyvit.functional.interpolation import resize_bilinear
from tinyvit.functional.layer_scale import layer_scale
from tinyvit.functional.layernorm import rmsnorm
from tinyvit.functional.masking import place_tokens, replace_tokens
from tinyvit.functional.modulation import add_gated, modulate
from tinyvit.functional.packing import packed_attention
from tinyvit.functional.pooling import avg_pool2d, global_avg_pool2d, max_pool2d
from tinyvit.functional.relu import relu
from tinyvit.functional.rope import rope, rope_halves
from tinyvit.functional.scale_channels import scale_channels
from tinyvit.functional.sigmoid import sigmoid, silu, swiglu
from tinyvit.functional.softmax import softmax
from tinyvit.functional.tanh import tanh
from tinyvit.functional.tokens import pool_mean
from tinyvit.kernels.cuda.cast import cast
from tinyvit.operands import LOW_PRECISION


def through_float32(operation, inputs=1):
    """Give an operation, and its backward, kernels for CuPy's bfloat16 and float16 that run it in float32.

    What it returns is in the dtype of its first argument, and so are the gradients of the first `inputs` differentiable
    arguments; those of the others, which are parameters, are float32. What comes in as float32 stays that. The cache is
    the one that float32 arrays leave; it must be the reference implementation's, as its dtype selects the backward.
    """
    for dtype in LOW_PRECISION:
        operation.register(("cupy", dtype), forward_through_float32(operation))
        operation.backward.register(("cupy", dtype), backward_through_float32(operation.backward, inputs))


def forward_through_float32(operation):
    first_name = next(iter(signature(operation).parameters))

    def forward(*args, **kwargs):
        dtype = (args[0] if args else kwargs[first_name]).dtype
        y, cache = operation(*map(up, args), **{name: up(value) for name, value in kwargs.items()})
        return down(y, dtype), cache

    return forward


def backward_through_float32(backward, inputs):
    def in_float32(dy, cache, *into):
        gradients = backward(up(dy), cache, *into)
        if not isinstance(gradients, tuple):
            return down(gradients, dy.dtype) if inputs else gradients
        return tuple(down(g, dy.dtype) if i < inputs else g for i, g in enumerate(gradients))

    return in_float32


def up(x):
    """An array of low precision in float32; everything else as it is."""
    return cast(x, np.float32) if str(getattr(x, "dtype", None)) in LOW_PRECISION else x


def down(x, dtype):
    """An array in `dtype`, if that is of low precision."""
    return cast(x, dtype) if str(dtype) in LOW_PRECISION else x


for of_one_input in (
    add_noise,
    avg_pool2d,
    batch_norm,
    batch_norm_running,
    conv_transpose2d,
    gather_batch,
    global_avg_pool2d,
    group_norm,
    l2_normalise,
    layer_scale,
    max_pool2d,
    place_tokens,
    pool_mean,
    quick_gelu,
    relu,
    replace_tokens,
    resize_bilinear,
    rmsnorm,
    rope,
    rope_halves,
    sigmoid,
    silu,
    softmax,
    tanh,
):
    through_float32(of_one_input)
for of_inputs, count in (
    (add_gated, 3),
    (dot_products, 2),
    (modulate, 3),
    (packed_attention, 3),
    (scale_channels, 2),
    (similarity, 2),
    (swiglu, 2),
):
    through_float32(of_inputs, count)
for of_parameters in (embed_labels, embedding, standardize_weight, standardize_weight_original):
    through_float32(of_parameters, inputs=0)
