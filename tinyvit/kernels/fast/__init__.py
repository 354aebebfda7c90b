"""Kernels compiled by numba (the extra `fast`): one pass over the data each. Importing this registers them."""

from tinyvit.kernels.fast import (
    adam,
    attention,
    batchnorm,
    conv,
    cross_entropy,
    gelu,
    groupnorm,
    layernorm,
    linear,
    pooling,
    softmax,
)
