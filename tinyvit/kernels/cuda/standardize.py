"""Standardised weights, in float32; `through_float32` does it in low precision."""

from tinyvit.backend import array_module
from tinyvit.functional.groupnorm import (
    StandardizedCache,
    StandardizedOriginalCache,
    standardize_weight,
    standardize_weight_backward,
    standardize_weight_original,
    standardize_weight_original_backward,
)
from tinyvit.kernels.cuda.source import Source, contiguous, empty_like

SOURCE = Source("standardize.cu", [{}])
BLOCK = 256


def standardize_weight_cuda(weight, eps=1e-6):
    if weight.ndim < 2 or not weight.size:
        return standardize_weight.reference(weight, eps)  # raises
    what, scale, _ = standardized(weight, eps, deviation=False)
    return what, StandardizedCache(what, scale)


def standardize_weight_original_cuda(weight, eps=1e-5):
    if weight.ndim < 2 or not weight.size:
        return standardize_weight_original.reference(weight, eps)  # raises
    what, scale, sigma = standardized(weight, eps, deviation=True)
    return what, StandardizedOriginalCache(what, scale, sigma)


def standardized(weight, eps, deviation):
    """The filters (O, …), what they were multiplied with, and their standard deviations, (O, 1) each."""
    weight, xp, filters = contiguous(weight), array_module(weight), len(weight)
    what, scale = empty_like(weight), xp.empty((filters, 1), "float32")
    sigma = xp.empty((filters, 1), "float32") if deviation else None
    arguments = weight, what, scale, sigma, float(eps), weight.size // filters
    SOURCE.launch("standardize_forward", filters, BLOCK, *arguments)
    return what, scale, sigma


def standardize_weight_backward_cuda(dy, cache, into):
    if cache.what.dtype != "float32":
        return standardize_weight_backward.reference(dy, cache)
    return gradient(dy, *cache, None, into[0])


def standardize_weight_original_backward_cuda(dy, cache, into):
    if cache.what.dtype != "float32":
        return standardize_weight_original_backward.reference(dy, cache)
    return gradient(dy, *cache, into[0])


def gradient(dy, what, scale, sigma, into):
    """The gradient of the filters, added to `into` if a kernel can write there; None for False."""
    if into is False:
        return None
    there = into is not None and into.dtype == "float32" and into.flags.c_contiguous
    dy, dweight, length = contiguous(dy), into if there else empty_like(dy), dy.size // len(dy)
    arguments = dy, contiguous(what), scale, sigma, dweight, length, int(there)
    SOURCE.launch("standardize_backward", len(dy), BLOCK, *arguments)
    return dweight


FLOAT32 = ("cupy", "float32")
standardize_weight.register(FLOAT32, standardize_weight_cuda)
standardize_weight_backward.register(FLOAT32, standardize_weight_backward_cuda)
standardize_weight_original.register(FLOAT32, standardize_weight_original_cuda)
standardize_weight_original_backward.register(FLOAT32, standardize_weight_original_backward_cuda)
