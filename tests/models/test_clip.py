"""CLIP: two towers, and what they are compared by."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import redrawn, seeds

from tinyvit import functional as F
from tinyvit import gradcheck
from tinyvit.models import ClipConfig, build, create_model
from tinyvit.models.summary import summarize
from tinyvit.models.text_tower import causal_mask
from tinyvit.nn import Context, Module

SMALL = ClipConfig(img_size=8, patch_size=4, in_chans=2, embed_dim=12, depth=2, num_heads=3, text_dim=8, text_depth=2,
                   text_heads=2, context_length=6, vocab_size=9, projection_dim=5, mlp_ratio=2.0)  # fmt: skip
END = 8


def texts():
    return np.array([[7, 0, 1, END, END, END], [7, 2, END, END, END, END], [7, 3, 2, 1, 4, END]])


def model_and_images(seed=0, config=SMALL, count=3):
    model = redrawn(build(config, dtype="float64"), seed)
    return model, np.random.default_rng(seed).standard_normal((count, *model.image_shape))


class Pairs(Module):
    """A CLIP as a module of images alone, with the texts above."""

    def __init__(self, clip):
        self.clip = clip

    def forward(self, images, ctx=None):
        return self.clip.compare(images, texts(), ctx)

    def backward(self, dy, cache):
        return self.clip.compare_backward(dy, cache)


@given(seed=seeds(), activation=st.sampled_from(["quick_gelu", "gelu", "gelu_tanh"]), count=st.integers(1, 4),
       recompute=st.booleans())  # fmt: skip
def test_gradients_of_both_towers_and_of_the_scale_match_the_complex_step(seed, activation, count, recompute):
    model, images = model_and_images(seed, replace(SMALL, activation=activation), count)
    report = gradcheck.check_model(Pairs(model), images, redraw=False, directions=3, ctx=Context(recompute=recompute))
    assert report.max_error < 1e-9, report


def test_every_parameter_gets_a_gradient():
    model, images = model_and_images()
    logits, cache = model.compare(images, texts())
    model.compare_backward(np.random.default_rng(1).standard_normal(logits.shape), cache)
    for name, parameter in model.named_parameters():
        assert parameter.grad.any(), name


@given(seed=seeds(), word=st.integers(0, 4))
def test_a_word_takes_nothing_from_later_ones_and_gives_them_no_gradient(seed, word):
    block = redrawn(build(SMALL, dtype="float64"), seed).text.blocks[0]
    x, dy = np.random.default_rng(seed).standard_normal((2, 2, 6, 8))
    y, cache = block(x)
    changed = x.copy()
    changed[:, word + 1 :] = dy[:, word + 1 :]
    np.testing.assert_array_equal(block(changed)[0][:, : word + 1], y[:, : word + 1])
    dy[:, word + 1 :] = 0
    dx = block.backward(dy, cache)
    assert not dx[:, word + 1 :].any(), "exactly zero"
    assert dx[:, : word + 1].any((0, 2)).all()


def test_a_text_ends_at_its_first_end_and_what_is_behind_it_is_not_seen():
    model, _ = model_and_images()
    y, cache = model.text(texts()[:2])
    longer = texts()[:2].copy()
    longer[0, 4:], longer[1, 3:] = 5, 1
    np.testing.assert_array_equal(model.text(longer)[0], y)
    np.testing.assert_array_equal(model.text(texts()[:2, :4])[0], y)
    model.text.backward(np.ones_like(y), cache)
    assert not model.text.pos_embed.grad[0, 4:].any()


def test_the_mask_lets_a_query_see_its_own_key_and_those_before():
    mask = causal_mask(3)
    np.testing.assert_array_equal(np.isneginf(mask), np.triu(np.ones((3, 3)), 1))
    assert not mask[np.isfinite(mask)].any()


@given(seed=seeds())
def test_logits_are_cosines_times_the_scale(seed):
    model, images = model_and_images(seed)
    logits, _ = model.compare(images, texts())
    x, y = model(images)[0], model.text(texts())[0]
    cosines = (x @ y.T) / np.linalg.norm(x, axis=1)[:, None] / np.linalg.norm(y, axis=1)
    np.testing.assert_allclose(logits, np.exp(model.logit_scale.data) * cosines, rtol=1e-10, atol=1e-12)


@given(seed=seeds())
def test_a_batch_in_another_order_has_the_same_loss_and_gradients(seed):
    model, images = model_and_images(seed)
    order, found = np.random.default_rng(seed).permutation(3), []
    for rows in (np.arange(3), order):
        model.zero_grad()
        logits, cache = model.compare(images[rows], texts()[rows])
        loss, c_loss = F.contrastive_loss(logits)
        model.compare_backward(F.contrastive_loss_backward(1.0, c_loss), cache)
        found.append((loss, model.storage.grad.copy()))
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=1e-12)
    np.testing.assert_allclose(found[1][1], found[0][1], rtol=1e-9, atol=1e-12)


def test_vit_b32_has_the_parameters_of_the_original_and_a_summary_counts_them_all():
    model = create_model("clip_vit_base_patch32_224", device="meta")
    assert model.num_parameters() == 151_277_313
    assert model.config == ClipConfig() and model.config.embed_dim // model.config.num_heads == 64
    assert sum(row.parameters for row in summarize(build(SMALL, device="meta"))) == build(
        SMALL, device="meta").num_parameters()  # fmt: skip


def test_the_temperature_starts_as_in_the_paper_and_no_weight_decay_moves_tokens_positions_or_it():
    model = build(SMALL)
    np.testing.assert_allclose(np.exp(-model.logit_scale.data), 0.07, rtol=1e-6)
    still = {name for name, parameter in model.named_parameters() if not parameter.decay}
    assert {"logit_scale", "text.token_embed.weight", "text.pos_embed", "visual.pos_embed", "visual.cls_token"} < still


def test_as_a_model_of_images_it_has_a_vits_parts_and_features():
    model, images = model_and_images()
    assert [name for name, _ in model.parts()] == ["embed", "blocks.0", "blocks.1", "pool", "norm", "proj"]
    y, cache = model(images)
    np.testing.assert_array_equal(model.visual.proj(model.features(images))[0], y)
    assert model.features(images, layer=-1).shape == (3, 5, 12) and model.grid == (2, 2)
    assert model.backward(np.ones_like(y), cache).shape == images.shape


@pytest.mark.parametrize("fields, message", [
    (dict(embed_dim=10), "embed_dim 10 is not divisible by num_heads 3"),
    (dict(text_dim=9), "text_dim 9 is not divisible by text_heads 2"),
    (dict(patch_size=3), "not a multiple of the patch size"),
    (dict(context_length=1), "context_length must be an int of at least 2, got 1"),
    (dict(vocabulary=("a", "b", "a")), "vocabulary must have each word once, got 'a' twice"),
    (dict(activation="relu"), "activation must be one of"),
    (dict(mlp_ratio=0.01), "mlp_ratio 0.01 leaves the MLP of embed_dim 12 no layer"),
])  # fmt: skip
def test_shapes_that_can_not_be_built_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        replace(SMALL, **fields)


def test_a_vocabulary_says_how_many_tokens_there_are():
    assert replace(SMALL, vocabulary=("a", "b")).vocab_size == 4


@pytest.mark.parametrize("tokens", [np.zeros((2, 7), int), np.zeros(3, int), np.zeros((2, 0), int)])
def test_texts_of_another_length_are_refused(tokens):
    with pytest.raises(ValueError, match=r"expected texts \(K, T\) of 1 to 6 tokens, got"):
        build(SMALL).text(tokens)
