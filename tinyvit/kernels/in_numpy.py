"""Kernels that need no more than NumPy, or CuPy on a GPU. Importing this registers them."""

from tinyvit.kernels import adam, attention, batchnorm, conv, gelu, groupnorm, layernorm, linear, relu, softmax  # noqa: F401
