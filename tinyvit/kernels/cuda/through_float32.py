"""Operations that aren't worth a kernel of their own in bfloat16 and float16 run in float32, between two casts.

A rotation's angles need float32's digits in any case. Standardised filters, gates and the logits of a teacher are few
numbers beside the maps.
"""

from inspect import signature

import numpy as np

from tinyvit.dispatch import LOW_PRECISION
from tinyvit.functional.conditions import embed_labels
from tinyvit.functional.contrastive import similarity
from tinyvit.functional.diffusion import add_noise
from tinyvit.functional.dino import l2_normalise
from tinyvit.functional.embedding import embedding
from tinyvit.functional.gathering import gather_batch
from tinyvit.functional.gelu import quick_gelu
from tinyvit.functional.groupnorm import standardize_weight, standardize_weight_original
from tinyvit.functional.layer_scale import layer_scale
from tinyvit.functional.masking import place_tokens, replace_tokens
from tinyvit.functional.modulation import add_gated, modulate
from tinyvit.functional.rope import rope
from tinyvit.functional.scale_channels import scale_channels
from tinyvit.functional.sigmoid import sigmoid, silu, swiglu
from tinyvit.kernels.cuda.cast import cast


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
        return cast(y, dtype), cache

    return forward


def backward_through_float32(backward, inputs):
    def in_float32(dy, cache, *into):
        gradients = backward(up(dy), cache, *into)
        if not isinstance(gradients, tuple):
            return cast(gradients, dy.dtype) if inputs else gradients
        return tuple(cast(g, dy.dtype) if i < inputs else g for i, g in enumerate(gradients))

    return in_float32


def up(x):
    """An array of low precision in float32; everything else as it is."""
    return cast(x, np.float32) if str(getattr(x, "dtype", None)) in LOW_PRECISION else x


through_float32(rope)
through_float32(replace_tokens)
through_float32(place_tokens)
through_float32(sigmoid)
through_float32(silu)
through_float32(swiglu)
through_float32(layer_scale)
through_float32(l2_normalise)
through_float32(quick_gelu)
through_float32(embedding, inputs=0)
through_float32(modulate, inputs=3)
through_float32(add_gated, inputs=3)
through_float32(embed_labels, inputs=0)
through_float32(add_noise)
through_float32(scale_channels, inputs=2)
through_float32(similarity, inputs=2)
through_float32(gather_batch)
for of_filters in (standardize_weight, standardize_weight_original):
    through_float32(of_filters, inputs=0)
