"""A residual connection and the layer norm behind it in one pass forward and one back: the kernels of `layernorm`."""

from tinyvit.dispatch import add_to, check_into
from tinyvit.functional.layernorm import LayerNormCache, add_layernorm, add_layernorm_backward
from tinyvit.kernels.cuda.layernorm import CudaLayerNormCache, gradients, normalised
from tinyvit.kernels.cuda.source import KINDS, plain_text


def add_layernorm_cuda(x, branch, weight, bias, eps=1e-6):
    if x.shape != branch.shape or not weight.shape == bias.shape == x.shape[-1:]:
        return add_layernorm.reference(x, branch, weight, bias, eps)  # raises
    if x.dtype != branch.dtype or not weight.dtype == bias.dtype == "float32":
        return plain_text(add_layernorm, x, branch, weight, bias, eps)
    total, y, cache = normalised(x, branch, weight, bias, eps)
    return (total, y), cache


def add_layernorm_backward_cuda(dy, cache, into=None):
    into = (None, None) if into is None else into
    check_into("add_layernorm_backward", into, 2)
    dtotal, dy = dy
    if (dy.dtype, dy.shape) == (dtotal.dtype, dtotal.shape) == (cache.x.dtype, cache.x.shape):
        dx, dweight, dbias = gradients(dy, dtotal, cache, into)
        return dx, dx, dweight, dbias
    plain_cache = LayerNormCache(cache.xhat, cache.rstd, cache.weight)
    dx, _, *parameters = plain_text(add_layernorm_backward, (dtotal, dy), plain_cache)
    return dx, dx, *(None if goal is False else add_to(goal, gradient) for goal, gradient in zip(into, parameters))


for kind in KINDS:
    add_layernorm.register(kind, add_layernorm_cuda)
add_layernorm_backward.register_cache(CudaLayerNormCache, add_layernorm_backward_cuda)
