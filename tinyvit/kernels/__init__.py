"""Faster implementations of operations, each with the signature of its reference implementation in `functional/`.

Importing this package registers the NumPy kernels; the kernels that numba compiles, in `fast/`, are registered when the
first is needed. `with tinyvit.kernels.using("numpy"):` chooses a level, see `levels.py`. Every kernel is tested against
the reference implementation.
"""

from importlib import import_module

from tinyvit.kernels import adam, attention, batchnorm, conv, gelu, groupnorm, layernorm, linear, relu, softmax
from tinyvit.levels import LEVELS, available, level, on_first_use, using

on_first_use("fast", ("numpy", "float32"), lambda: import_module("tinyvit.kernels.fast"))
for dtype in ("float32", "bfloat16", "float16", "uint8"):
    on_first_use("numpy", ("cupy", dtype), lambda: import_module("tinyvit.kernels.cuda"))
