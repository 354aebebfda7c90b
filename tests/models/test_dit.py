"""DiT."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import redrawn, seeds

from tinyvit import Context, Key, gradcheck
from tinyvit.models import DiT, DiTConfig, build, create_model
from tinyvit.nn.dit_block import split
from tinyvit.nn.module import Module

SMALL = DiTConfig(img_size=(4, 6), patch_size=2, in_chans=2, num_classes=3, embed_dim=8, depth=2, num_heads=2)


def drawn(config=SMALL, seed=0, B=3):
    """A model with redrawn weights in float64, images, times and labels."""
    random = np.random.default_rng(seed)
    images = random.standard_normal((B, config.in_chans, 4, 6))
    return redrawn(build(config, dtype="float64"), seed), images, random.integers(0, 1000, B), random.integers(0, 3, B)


class At(Module):
    """A DiT at fixed times and classes: a function of images alone."""

    def __init__(self, model, t, labels):
        self.model, self.t, self.labels = model, t, labels

    def forward(self, images, ctx=None):
        return self.model(images, ctx, t=self.t, labels=self.labels)

    def backward(self, dy, cache):
        return self.model.backward(dy, cache)


@given(learn_sigma=st.booleans(), dropout=st.sampled_from([0.0, 0.1]), patch=st.sampled_from([1, 2, (4, 3)]),
       ratio=st.sampled_from([0.5, 2.0]), seed=seeds())  # fmt: skip
def test_gradients_of_any_dit_match_the_complex_step(learn_sigma, dropout, patch, ratio, seed):
    config = replace(SMALL, learn_sigma=learn_sigma, label_dropout=dropout, patch_size=patch, mlp_ratio=ratio)
    model, images, t, labels = drawn(config, seed)
    report = gradcheck.check_model(At(model, t, labels).materialize(dtype="float64"), images, directions=3)
    assert report.max_error < 1e-9, report


def test_gradients_are_right_in_training_where_classes_are_left_out():
    model, images, t, labels = drawn(replace(SMALL, label_dropout=0.5), B=6)
    ctx = Context(training=True, key=Key(1, 2))
    model, labels = At(model, t, labels).materialize(dtype="float64"), labels
    report = gradcheck.check_model(model, images, ctx=ctx, directions=5)
    assert report.max_error < 1e-9, report


@given(seed=seeds())
def test_adaln_zero_makes_every_block_the_identity_at_the_start(seed):
    model = DiT(SMALL, seed=seed, dtype="float64")
    x, dy = np.random.default_rng(seed).standard_normal((2, 3, 1 + 6, 8))
    for block in model.blocks:
        y, cache = block(x)
        np.testing.assert_array_equal(y, x)
        np.testing.assert_array_equal(block.backward(dy, cache), dy)
    noise, _ = model(np.random.default_rng(seed).standard_normal((2, 2, 4, 6)))
    assert not noise.any()  # the last layer begins at zero, too


def test_at_the_start_only_gates_and_the_last_layer_can_learn_after_it_has_moved():
    model, _, t, labels = drawn()
    model = DiT(SMALL, dtype="float64")
    images, dy = np.random.default_rng(0).standard_normal((2, 3, 2, 4, 6))
    model.backward(dy, model(images, t=t, labels=labels)[1])
    learn = {name for name, parameter in model.named_parameters() if parameter.grad.any()}
    assert learn == {"final_layer.linear.weight", "final_layer.linear.bias"}
    model.zero_grad()
    model.final_layer.linear.weight.data = np.random.default_rng(1).standard_normal((8, 8))
    model.backward(dy, model(images, t=t, labels=labels)[1])
    gates = model.blocks[0].adaLN_modulation[1].weight.grad.reshape(6, 8, 8)
    assert [bool(part.any()) for part in gates] == [False, False, True, False, False, True]


def test_the_output_depends_on_time_class_and_place():
    model, images, t, labels = drawn()
    noise, _ = model(images, t=t, labels=labels)
    for changed in (dict(t=t + 1, labels=labels), dict(t=t, labels=(labels + 1) % 3)):
        other, _ = model(images, **changed)
        assert (other != noise).any((1, 2, 3)).all()
    rolled, _ = model(np.roll(images, 2, axis=3), t=t, labels=labels)
    assert not np.allclose(np.roll(rolled, -2, axis=3), noise)


def test_attention_does_not_see_the_condition():
    model, images, t, labels = drawn()
    _, cache = model(images, t=t, labels=labels)
    assert cache.blocks[0].attn.heads.probs.shape == (3, 2, 6, 6)
    x, _ = model.embed(images, t=t, labels=labels)
    c, tokens = split(x)
    assert c.shape == (3, 8) and tokens.shape == (3, 6, 8)
    y, _ = model.blocks[0](x)
    np.testing.assert_array_equal(split(y)[0], c)  # and no block changes it


def test_without_a_time_and_classes_they_are_the_least_noise_and_none():
    model, images, _, _ = drawn()
    expected, _ = model(images, t=np.zeros(3, int), labels=np.full(3, 3))
    np.testing.assert_array_equal(model(images)[0], expected)
    assert model.features(images, 1).shape == (3, 7, 8)


def test_in_training_a_share_of_the_classes_is_left_out_by_sample_and_step():
    model, _, _, _ = drawn(replace(SMALL, label_dropout=0.25))
    embedder, labels = model.embed.y_embedder, np.zeros(2000, int)
    table = embedder.embedding_table.weight.data

    def left_out(step, first=0, count=2000):
        y, _ = embedder(labels[:count], Context(training=True, key=Key(0, step).skip(first)))
        found = (y == table[3]).all(1)
        np.testing.assert_array_equal(y[~found], table[labels[:count][~found]])
        return found

    found = left_out(0)
    assert 0.2 < found.mean() < 0.3 and (found != left_out(1)).any()
    np.testing.assert_array_equal(left_out(0, 500, 700), found[500:1200])
    np.testing.assert_array_equal(embedder(labels)[0], table[labels])


def test_a_recomputed_block_has_the_same_bits():
    model, images, t, labels = drawn()
    found = []
    for recompute in (False, True):
        model.zero_grad()
        ctx = Context(training=True, key=Key(0, 0), recompute=recompute)
        noise, cache = model(images, ctx, t=t, labels=labels)
        found.append((noise, model.backward(noise, cache), model.storage.gradients().copy()))
    for plain, again in zip(*found):
        np.testing.assert_array_equal(plain, again)


def test_the_output_with_a_learned_variance_has_twice_the_channels():
    model = create_model("dit_s_8", device="meta")
    assert model.config.out_chans == 8 and model.final_layer.linear.weight.shape == (8 * 8 * 8, 384)
    assert model.embed.y_embedder.embedding_table.weight.shape == (1001, 384)
    without = build(replace(SMALL, label_dropout=0.0), device="meta")
    assert without.embed.y_embedder.embedding_table.weight.shape == (3, 8)


@pytest.mark.parametrize("changes, message", [
    (dict(embed_dim=6), "embed_dim must be a multiple of 4.*got 6 and 2 heads"),
    (dict(num_heads=3), "got 8 and 3 heads"),
    (dict(mlp_ratio=0.01), "leaves the MLP of width 8 no hidden layer"),
    (dict(patch_size=3), "4×6"),
    (dict(num_classes=0), "num_classes must be a positive int, got 0"),
    (dict(label_dropout=1.0), "label_dropout must be a number of at least 0 and below 1, got 1.0"),
])  # fmt: skip
def test_a_shape_that_can_not_be_built_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(SMALL, **changes)


@pytest.mark.parametrize("call, message", [
    (dict(t=np.zeros(2, int)), r"expected t \(3,\) as ints, one for each image, got int64 \(2,\)"),
    (dict(t=np.zeros(3)), r"expected t \(3,\) as ints.*got float64"),
    (dict(labels=np.zeros((3, 1), int)), r"expected labels \(3,\) as ints.*got int64 \(3, 1\)"),
    (dict(labels=[0, 0, 0]), "got list"),
    (dict(labels=np.array([0, 1, 4])), "expected labels from 0 to 3, got 0 to 4"),
])  # fmt: skip
def test_times_and_classes_that_do_not_fit_are_refused(call, message):
    model, images, _, _ = drawn()
    with pytest.raises(ValueError, match=message):
        model(images, **call)


def test_a_model_without_label_dropout_goes_by_the_time_alone_where_no_class_is_given():
    model, images, t, labels = drawn(replace(SMALL, label_dropout=0.0))
    time_alone, _ = model(images, t=t)
    for parameter in model.embed.y_embedder.parameters():
        parameter.data = 0 * parameter.data
    np.testing.assert_array_equal(model(images, t=t, labels=labels)[0], time_alone)
    assert gradcheck.check_model(model, images, directions=3).max_error < 1e-9


def test_no_dit_classifies():
    model, images, _, _ = drawn()
    with pytest.raises(ValueError, match="a DiT generates images and is not a classifier; take model.features"):
        model.predict(images)
