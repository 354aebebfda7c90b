"""What a layer costs, worked out from its shape alone: nothing is computed and no weight is needed.

A layer says so itself, by registering with `describe`; so does every architecture, in its own file.
"""

from contextlib import contextmanager
from contextvars import ContextVar
from functools import singledispatch
from math import prod
from typing import NamedTuple

from tinyvit import functional as F
from tinyvit import levels
from tinyvit.functional.attention import NARROW
from tinyvit.nn import attention
from tinyvit.nn.attention import Attention
from tinyvit.nn.block import Block, Mlp
from tinyvit.nn.layers import Dropout, DropPath, LayerNorm, Linear
from tinyvit.nn.patch_embed import PatchEmbed, PatchProjection
from tinyvit.nn.variables import Parameter

_on_gpu = ContextVar("tinyvit.summary.on_gpu", default=False)


@contextmanager
def on_gpu(holds=True):
    """Inside this, activations are counted as a GPU's kernels keep them."""
    token = _on_gpu.set(holds)
    try:
        yield
    finally:
        _on_gpu.reset(token)


def kernels():
    """Whose caches are counted: the level's of `kernels`, or "cuda"."""
    return "cuda" if _on_gpu.get() and levels.level() != "reference" else levels.level()


class Row(NamedTuple):
    """One line of a summary."""

    path: str
    kind: str           # the layer's class, or an operation without parameters
    shape: tuple        # of the output
    parameters: int
    multiply_adds: int  # of the matrix products, forwards
    activations: int    # numbers that the backward needs and that no layer before has kept already, at the level of
    #                     kernels in force, in float32


@singledispatch
def describe(module, shape):
    """(shape of the output, rows) of a module for an input of `shape`."""
    raise ValueError(f"{type(module).__name__} doesn't describe what it costs; register it with nn.summary.describe")


def chain(modules, shape):
    """Modules one after the other."""
    rows = []
    for module in modules:
        shape, more = describe(module, shape)
        rows += more
    return shape, rows


def own_parameters(module):
    """How many parameters a module holds itself, its sub-modules left out."""
    return sum(value.size for value in vars(module).values() if isinstance(value, Parameter))


@describe.register(Linear)
@describe.register(PatchProjection)
def _(module, shape):
    out = (*shape[:-1], module.weight.shape[0])
    multiply_adds = prod(shape[:-1]) * module.weight.size
    kind = type(module).__name__
    return out, [Row(module.path, kind, out, own_parameters(module), multiply_adds, prod(shape))]


@describe.register
def _(module: LayerNorm, shape):
    # The normalised input and a standard deviation for each token, or the input and with it the mean, in two parts.
    kept = prod(shape) + prod(shape[:-1]) * {"fast": 3, "cuda": 2}.get(kernels(), 1)
    return shape, [Row(module.path, "LayerNorm", shape, own_parameters(module), 0, kept)]


@describe.register(Dropout)
@describe.register(DropPath)
def _(module, shape):
    return shape, []  # at work only while training; its mask is a byte an entry, not a number


@describe.register
def _(module: PatchEmbed, shape):
    B, C, H, W = shape
    p, q = module.patch_size
    return describe(module.proj, (B, (H // p) * (W // q), C * p * q))


@describe.register
def _(module: Attention, shape):
    B, N, D = shape
    _, qkv = describe(module.qkv, shape)
    kept = 3 * B * N * D + (2 * B * N * D if module.rope_grid else 0)
    if module.attn_drop:
        kept += 2 * B * module.num_heads * N * N               # the probabilities, and in training what is left of them
    elif kernels() == "fast" or (kernels() == "cuda" and module.head_dim in NARROW and N < attention.TILED_FROM):
        kept += 2 * B * module.num_heads * N                   # the largest score and the sum of each row
    elif N >= attention.TILED_FROM:
        kept += B * N * D + 2 * B * module.num_heads * N       # the heads, the largest score and the sum of each row
    else:
        kept += B * module.num_heads * N * N
    heads = Row(f"{module.path}.heads", "attention", shape, 0, 2 * B * N * N * D, kept)
    _, proj = describe(module.proj, shape)
    return shape, [*qkv, heads, *proj]


@describe.register
def _(module: Mlp, shape):
    hidden, fc1 = describe(module.fc1, shape)
    slope_alone = module.act is F.gelu and kernels() != "reference"  # else the input and Φ, or the tanh
    act = Row(f"{module.path}.act", module.act.__name__, hidden, 0, 0, prod(hidden) * (1 if slope_alone else 2))
    shape, fc2 = describe(module.fc2, hidden)
    return shape, [*fc1, act, *fc2]


@describe.register
def _(module: Block, shape):
    return chain([module.norm1, module.attn, module.norm2, module.mlp], shape)
