from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given
from strategies import images_for, redrawn, seeds, vits

from tinyvit import Context, Key, ViT, ViTConfig, gradcheck, kernels
from tinyvit.functional.attention import AttentionCache, AttentionDropoutCache
from tinyvit.functional.tiled_attention import TiledAttentionCache
from tinyvit.nn import Attention, attention


@contextmanager
def tiled_from(tokens):
    """Inside this block, attention is tiled from this many tokens on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "MIN_TILED_TOKENS", tokens)
        yield


def gradients(model, x):
    model.zero_grad()
    logits, cache = model(x)
    return logits, model.backward(np.cos(5 * logits), cache), model.storage.grad.copy()


@given(model=vits(), seed=seeds())
def test_a_vit_gives_the_same_and_gets_the_same_gradients_in_tiles(model, seed):
    x = images_for(model, seed, 2)
    expected = gradients(model, x)
    with tiled_from(1):
        for got, want in zip(gradients(model, x), expected):
            np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-10)
        assert isinstance(model(x)[1].blocks[0].attn.heads, TiledAttentionCache)


@pytest.mark.parametrize("positions", ["learned", "rope"])
def test_all_gradients_of_a_vit_in_tiles_match_the_complex_step(positions):
    model = ViT(ViTConfig((8, 12), (4, 3), 2, 5, 24, 3, 2, positions=positions), dtype="float64")
    with tiled_from(1):
        report = gradcheck.check_model(model, np.random.default_rng(0).standard_normal((3, 2, 8, 12)))
    assert report.max_error < 1e-9, report


def heads_of(tokens, attn_drop=0.0, ctx=None):
    """The cache of an attention over this many tokens."""
    layer = Attention(4, 2, attn_drop=attn_drop).materialize()
    with kernels.using("numpy"):  # what numba compiles goes in tiles always
        y, cache = layer(np.ones((1, tokens, 4), "float32"), ctx)
    assert layer.backward(y, cache).shape == (1, tokens, 4)
    return cache.heads


def test_long_rows_go_in_tiles_and_short_ones_at_once():
    assert isinstance(heads_of(65), AttentionCache)
    assert isinstance(heads_of(1025), TiledAttentionCache)


def test_probabilities_are_kept_at_any_length_if_dropout_is_on():
    training = Context(training=True, key=Key(0))
    with tiled_from(1):
        assert isinstance(heads_of(5, 0.3, training), AttentionDropoutCache)
        assert isinstance(heads_of(5, 0.3, Context()), TiledAttentionCache)
        assert isinstance(heads_of(5, 0.0, training), TiledAttentionCache)


def test_the_probabilities_have_the_same_name_in_tiles():
    model = redrawn(ViT(ViTConfig(8, 4, 2, 5, 12, 2, 3), dtype="float64"))
    x = images_for(model, 0, 4)
    expected = model(x)[1].blocks[1].attn.heads.probs
    with tiled_from(1):
        np.testing.assert_allclose(model(x)[1].blocks[1].attn.heads.probs, expected, rtol=1e-12)
    assert expected.shape == (4, 3, 5, 5)


FORMS = {"plain": {}, "tiled": {}, "rotated": {"rope_grid": (2, 2)}, "dropped": {"attn_drop": 0.3}}


@pytest.mark.parametrize("level", kernels.available())
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", [(2, 3, 5, 5), (3, 5, 5), (5, 5), (2, 1, 1, 5)])
def test_a_bias_gets_its_gradient_whatever_attention_runs(form, shape, dtype, level):
    layer = redrawn(Attention(12, 3, **FORMS[form]).materialize(dtype=dtype))
    ctx = Context(training=True, key=Key(3)) if form == "dropped" else None
    x, dy = np.random.default_rng(0).standard_normal((2, 2, 5, 12)).astype(dtype)
    bias, v = np.random.default_rng(1).standard_normal((2, *shape)).astype(dtype)
    with tiled_from(1 if form == "tiled" else 1024), kernels.using(level):
        layer.zero_grad()
        _, cache = layer(x, ctx, bias=bias)
        dx, dbias = layer.backward(dy, cache)
        exact = layer.to("complex128")
        moved, _ = exact(x, ctx, bias=bias + 1e-20j * v)
    assert dx.shape == x.shape and dbias.shape == shape and dbias.dtype == dtype
    expected = (dy * moved.imag).sum() / 1e-20
    np.testing.assert_allclose((dbias * v).sum(), expected, rtol=1e-10 if dtype == "float64" else 1e-4, atol=1e-10)


def test_with_a_causal_mask_no_token_depends_on_a_later_one():
    layer = redrawn(Attention(12, 3).materialize(dtype="float64"))
    x = np.random.default_rng(0).standard_normal((2, 5, 12))
    mask = np.where(np.tri(5), 0.0, -np.inf)
    expected, _ = layer(x, bias=mask)
    for N in range(1, 5):
        np.testing.assert_allclose(layer(x[:, :N], bias=mask[:N, :N])[0], expected[:, :N], atol=1e-13)
