"""A whole attention layer on the device, in all its variants, against the float64 reference on the CPU."""

import numpy as np
import pytest
from numbers_of import DTYPE, EPSILON, numbers, to

import tinyvit
from tinyvit import Context, Key
from tinyvit.functional.attention import AttentionCache, AttentionDropoutCache
from tinyvit.functional.tiled_attention import TiledAttentionCache
from tinyvit.nn import Attention, attention
from tinyvit.nn.variables import Parameter

BOUND = {"float32": 1e-5, "float16": 4e-3, "bfloat16": 1.6e-2}  # DESIGN.md's, of the largest number
FORMS = {
    "plain": (AttentionCache, {}),
    "tiled": (TiledAttentionCache, {}),
    "rotated": (AttentionCache, {"rope_grid": (2, 4)}),
    "dropped": (AttentionDropoutCache, {"attn_drop": 0.3}),
}


def run(layer, x, dy, ctx):
    """Result, gradient of the input, and gradients of the parameters by name."""
    layer.zero_grad()
    y, cache = layer(x, ctx)
    dx = layer.backward(dy, cache)
    return y, dx, {name: parameter.grad for name, parameter in layer.named_parameters()}, cache


@pytest.mark.parametrize("dtype", EPSILON)
@pytest.mark.parametrize("form", FORMS)
def test_an_attention_layer_is_that_of_the_reference(cupy, monkeypatch, form, dtype):
    kind, options = FORMS[form]
    monkeypatch.setattr(attention, "TILED_FROM", 1 if form == "tiled" else 1024)
    ctx = Context(training=True, key=Key(3)) if form == "dropped" else None
    layer = Attention(24, 3, **options).materialize(dtype="float32", device="cuda")
    plain = Attention(24, 3, **options).materialize(dtype="float64")
    on_device = dict(layer.named_parameters())
    for i, (name, parameter) in enumerate(plain.named_parameters()):
        low = dtype if len(parameter.shape) == 2 else "float32"
        parameter.data = numbers(*parameter.shape, dtype=low, seed=i, scale=0.2)
        on_device[name].data = to(cupy, parameter.data)
    # The weights of matrix products have the compute dtype; everything else stays float32.
    computed_in = {2: DTYPE[dtype], 1: DTYPE["float32"]}
    monkeypatch.setattr(Parameter, "value", property(lambda p: p.data.astype(computed_in[len(p.shape)])))
    x, dy = numbers(2, 9, 24, dtype=dtype, seed=7), numbers(2, 9, 24, dtype=dtype, seed=8)
    y, dx, gradients, cache = run(layer, to(cupy, x, dtype), to(cupy, dy, dtype), ctx)
    monkeypatch.setattr(Parameter, "value", property(lambda p: p.data))
    with tinyvit.reference():
        expected, wanted_dx, wanted, c = run(plain, x, dy, ctx)
    assert isinstance(cache.heads, kind) and y.dtype == dx.dtype == DTYPE[dtype]
    got_want = [(y, expected), (dx, wanted_dx), *((gradients[name], wanted[name]) for name in wanted)]
    for got, want in [*got_want, (cache.heads.probs, c.heads.probs)]:
        got = got.get().astype("float64")
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=0, atol=BOUND[dtype] * abs(want).max())
