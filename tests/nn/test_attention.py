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
    """Inside this, attention goes in tiles from so many tokens on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "TILED_FROM", tokens)
        yield


def gradients(model, x):
    model.zero_grad()
    logits, cache = model(x)
    dimages = model.backward(np.cos(5 * logits), cache)
    return logits, dimages, model.storage.grad.copy()


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
    """The cache of an attention over so many tokens."""
    layer = Attention(4, 2, attn_drop=attn_drop).materialize()
    with kernels.using("numpy"):  # what numba compiles goes in tiles always
        y, cache = layer(np.ones((1, tokens, 4), "float32"), ctx)
    assert layer.backward(y, cache).shape == (1, tokens, 4)
    return cache.heads


def test_long_rows_go_in_tiles_and_short_ones_at_once():
    assert isinstance(heads_of(65), AttentionCache)
    assert isinstance(heads_of(1025), TiledAttentionCache)


def test_dropped_probabilities_are_kept_whatever_the_length_but_only_where_some_are_dropped():
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
