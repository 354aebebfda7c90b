"""A residual connection and the layer norm after it, in one pass forward and one back: the kernels of `layernorm`."""

from tinyvit.functional.layernorm import LayerNormCache, add_layernorm, add_layernorm_backward, fits
from tinyvit.kernels.cuda.layernorm import LONGEST, CudaLayerNormCache, gradients, normalised
from tinyvit.kernels.cuda.source import KINDS, run_reference


def add_layernorm_cuda(x, branch, weight, bias, eps=1e-6):
    if x.shape != branch.shape or not fits(x, weight, bias):
        return add_layernorm.reference(x, branch, weight, bias, eps)  # raises
    if x.dtype != branch.dtype or not weight.dtype == bias.dtype == "float32" or x.shape[-1] > LONGEST:
        return run_reference(add_layernorm, x, branch, weight, bias, eps)
    total, y, cache = normalised(x, branch, weight, bias, eps)
    return (total, y), cache


def add_layernorm_backward_cuda(dy, cache, into):
    dtotal, dy = dy
    if all(each is None or each.dtype == cache.x.dtype for each in (dtotal, dy)):
        dx, dweight, dbias = gradients(dy, dtotal, cache, into)
        return dx, dx, dweight, dbias
    return run_reference(add_layernorm_backward, (dtotal, dy), LayerNormCache(cache.xhat, cache.rstd, cache.weight))


for kind in KINDS:
    add_layernorm.register(kind, add_layernorm_cuda)
add_layernorm_backward.register_cache(CudaLayerNormCache, add_layernorm_backward_cuda)
