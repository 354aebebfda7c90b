from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import redrawn, seeds

from tinyvit import Context, Key, gradcheck
from tinyvit.models import DeiTConfig, build

SMALL = DeiTConfig(img_size=8, patch_size=4, in_chans=2, num_classes=3, embed_dim=8, depth=2, num_heads=2)


def random_images(model, count=2, seed=0):
    return np.random.default_rng(seed).standard_normal((count, *model.image_shape)).astype(model.dtype)


@given(registers=st.integers(0, 3), classes=st.sampled_from([0, 3]), seed=seeds(),
       positions=st.sampled_from(["learned", "learned_2d", "sincos_2d", "rope", "none"]))  # fmt: skip
def test_gradients_of_any_deit_match_the_complex_step(registers, classes, seed, positions):
    config = replace(SMALL, num_registers=registers, num_classes=classes, positions=positions)
    model = redrawn(build(config, dtype="float64"), seed)
    report = gradcheck.check_model(model, random_images(model), redraw=False, directions=3)
    assert report.max_error < 1e-9, report


def test_the_logits_are_the_mean_of_both_heads_and_a_pair_of_gradients_reaches_each():
    model = redrawn(build(SMALL, dtype="float64", device="cpu"))
    images = random_images(model)
    (cls, dist), cache = model.logits_by_head(images)
    np.testing.assert_allclose(model(images)[0], (cls + dist) / 2, rtol=1e-14)
    assert abs(cls - dist).max() > 0.01
    dcls, ddist = np.random.default_rng(1).standard_normal((2, *cls.shape))

    def gradients(dlogits):
        model.zero_grad()
        dimages = model.backward(dlogits, cache)
        return dimages, {name: p.grad.copy() for name, p in model.named_parameters()}

    dimages, both = gradients((dcls, ddist))
    np.testing.assert_allclose(both["head.bias"], dcls.sum(0))
    np.testing.assert_allclose(both["head_dist.bias"], ddist.sum(0))
    parts = [gradients(pair)[0] for pair in ((dcls, 0 * ddist), (0 * dcls, ddist))]
    np.testing.assert_allclose(dimages, sum(parts), rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(gradients((dcls, dcls))[0], gradients(2 * dcls)[0], rtol=1e-10, atol=1e-14)


def test_registers_come_behind_the_two_tokens_have_no_position_and_are_thrown_away():
    model = redrawn(build(replace(SMALL, num_registers=3), dtype="float64"))
    images = random_images(model)
    tokens, _ = model.embed(images)
    assert model.num_prefix_tokens == 5 and tokens.shape == (2, 5 + 4, 8)
    np.testing.assert_array_equal(tokens[:, 2:5], np.repeat(model.embed.reg_token.data, 2, axis=0))
    assert model.embed.positions.pos_embed.shape == (1, 2 + 4, 8)
    assert model.features(images).shape == (2, 16) and model.features(images, 1).shape == (2, 9, 8)
    np.testing.assert_array_equal(model.features(images), model.encode(tokens)[0][:, :2].reshape(2, 16))


def test_a_model_without_classes_has_no_logits_of_its_heads():
    model = build(replace(SMALL, num_classes=0))
    with pytest.raises(ValueError, match="the model has no head"):
        model.logits_by_head(random_images(model))


def test_registers_change_what_attention_sees():
    plain, more = build(SMALL, dtype="float64"), build(replace(SMALL, num_registers=2), dtype="float64")
    more.load_state_dict(redrawn(plain).state_dict(), strict=False)
    images = random_images(plain)
    assert abs(plain(images)[0] - more(images)[0]).max() > 1e-6


def test_the_same_model_for_larger_images_keeps_the_positions_of_both_tokens():
    model = redrawn(build(replace(SMALL, num_registers=1), dtype="float64"))
    larger = model.at_img_size(12)
    before, after = (m.embed.positions.pos_embed.data for m in (model, larger))
    assert after.shape == (1, 2 + 9, 8)
    np.testing.assert_array_equal(after[:, :2], before[:, :2])
    assert larger(random_images(larger))[0].shape == (2, 3)


def test_some_patches_can_be_left_out_but_no_token_before_them():
    model = redrawn(build(replace(SMALL, num_registers=1), dtype="float64", device="cpu"))
    ctx = Context(training=True, key=Key(0))
    logits, cache = model.forward_some(random_images(model), 0.5, ctx)
    assert cache.take.index.shape == (2, 3 + 2) and (cache.take.index[:, :3] == [0, 1, 2]).all()
    assert model.backward_some(np.ones_like(logits), cache).shape == (2, 2, 8, 8)


@pytest.mark.parametrize("fields, message", [
    (dict(global_pool="avg"), "global_pool must be 'token' and head_hidden None, got 'avg' and None"),
    (dict(head_hidden=5), "got 'token' and 5"),
    (dict(num_registers=-1), "num_registers"),
])  # fmt: skip
def test_shapes_that_cannot_be_built_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        replace(SMALL, **fields)
