"""Faster implementations of operations, each under the same signature as its plain text in `functional/`.

Importing this package registers them. Every kernel is tested against the plain text.
"""

from tinyvit.kernels import gelu, layernorm, linear, softmax
