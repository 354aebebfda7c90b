"""Faster implementations of operations, each with the signature of its reference implementation in `functional/`.

The kernels of a level are imported, and so registered, when the first array of their kind is used.
`with tinyvit.kernels.using("numpy"):` chooses a level, see `levels.py`. Every kernel is tested against the reference
implementation.
"""

from itertools import product

from tinyvit.levels import LEVELS, available, import_on_first_use, level, using

import_on_first_use("tinyvit.kernels.fast", "fast", [("numpy", "float32")])
IN_NUMPY = product(("numpy", "cupy"), ("float32", "float64", "complex128"))
import_on_first_use("tinyvit.kernels.in_numpy", "numpy", IN_NUMPY)
import_on_first_use("tinyvit.kernels.cuda", "numpy", product(["cupy"], ("float32", "bfloat16", "float16", "uint8")))
