from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from strategies import images_for, redrawn, seeds, vits

from tinyvit import ViT, ViTConfig, kernels, probe
from tinyvit import functional as F
from tinyvit.nn import attention as nn_attention

CONFIG = ViTConfig(8, 4, in_chans=2, num_classes=5, embed_dim=12, depth=2, num_heads=3)


def model_and_images(dtype="float64", **fields):
    model = redrawn(ViT(CONFIG, dtype=dtype, **fields))
    return model, images_for(model, 0, 3).astype(dtype)


@given(model=vits(), seed=seeds())
def test_a_trace_has_every_value_and_gradient_by_path_and_the_models_own_results(model, seed):
    images = images_for(model, seed, 2)
    targets = np.random.default_rng(seed).integers(0, model.config.num_classes, 2)
    trace = probe.trace(model, images, targets)
    paths = {path for path, _ in model.named_modules()}
    assert set(trace.values) == set(trace.gradients) == paths

    logits, cache = model(images)
    loss, c_loss = F.cross_entropy(logits, targets)
    model.zero_grad()
    dimages = model.backward(F.cross_entropy_backward(1.0, c_loss), cache)
    np.testing.assert_array_equal(trace.logits, logits)
    np.testing.assert_array_equal(trace.probabilities, F.softmax(logits)[0])
    assert trace.loss == float(loss)
    assert trace.grid == model.config.grid
    np.testing.assert_array_equal(trace.attention, np.stack([block.attn.heads.probs for block in cache.blocks]))
    np.testing.assert_allclose(trace.gradients[""][1], dimages, rtol=1e-12, atol=1e-13)
    for name, parameter in model.named_parameters():
        np.testing.assert_allclose(trace.parameter_gradients[name], parameter.grad, rtol=1e-12, atol=1e-13)


def test_the_models_own_gradients_stay_as_they_are():
    model, images = model_and_images()
    model.storage.gradients()[:] = 3
    probe.trace(model, images, [0, 1, 2])
    assert (model.storage.grad == 3).all()


def test_the_gradient_of_the_attention_is_that_of_the_loss_by_central_differences(monkeypatch):
    model, images = model_and_images()
    targets = [0, 3, 1]
    trace = probe.trace(model, images, targets)
    assert trace.attention_gradients.shape == trace.attention.shape == (2, 3, 3, 5, 5)
    direction = np.random.default_rng(1).standard_normal(trace.attention.shape)
    attention = F.attention

    def loss(step):
        """The loss with every layer's probabilities shifted by `step` along the direction."""
        layers = iter(step * direction)

        def moved(q, k, v, *rest):
            y, cache = attention(q, k, v, *rest)
            return y + next(layers) @ v, cache

        monkeypatch.setattr(F, "attention", moved)
        value = F.cross_entropy(model(images)[0], np.array(targets))[0]
        monkeypatch.undo()
        return value

    expected = (loss(1e-5) - loss(-1e-5)) / 2e-5
    assert (trace.attention_gradients * direction).sum() == pytest.approx(expected, rel=1e-7)


def test_a_class_gives_the_gradients_of_its_logit_image_by_image():
    model, images = model_and_images()
    together = probe.trace(model, images, classes=[4, 0, 4])
    assert together.loss is None
    for b, k in enumerate([4, 0, 4]):
        _, cache = model(images[b : b + 1])
        dimage = model.backward(np.eye(5)[[k]], cache)
        np.testing.assert_allclose(together.gradients[""][1][b : b + 1], dimage, rtol=1e-10, atol=1e-12)


def test_without_targets_nothing_is_differentiated():
    model, images = model_and_images()
    trace = probe.trace(model, images)
    assert trace.loss is None and trace.attention_gradients is None
    assert trace.gradients == trace.parameter_gradients == {}
    assert model.storage.grad is None


def test_frozen_parameters_have_no_gradient_in_a_trace():
    model, images = model_and_images()
    model.freeze("blocks.0.*")
    found = probe.trace(model, images, [0, 1, 2]).parameter_gradients
    assert set(found) == {name for name, _ in model.named_parameters() if not name.startswith("blocks.0.")}


@pytest.mark.parametrize("tiled_from", [1, 1024], ids=["tiled", "whole"])
@pytest.mark.parametrize("level", kernels.LEVELS)
def test_every_kernel_and_the_tiled_attention_give_the_same_attention_and_gradients(level, tiled_from, monkeypatch):
    model, images = model_and_images()
    expected = probe.trace(model, images, [0, 1, 2])
    monkeypatch.setattr(nn_attention, "MIN_TILED_TOKENS", tiled_from)
    model.to(dtype="float32")
    with kernels.using(level):
        got = probe.trace(model, images.astype("float32"), [0, 1, 2])
    for name in ("attention", "attention_gradients", "logits", "probabilities"):
        wanted = getattr(expected, name)
        assert getattr(got, name).dtype == "float32"
        np.testing.assert_allclose(getattr(got, name), wanted, rtol=0, atol=2e-5 * np.abs(wanted).max(), err_msg=name)
    np.testing.assert_allclose(got.attention.sum(-1), 1, atol=1e-6)


def test_mismatched_inputs_are_refused_by_name():
    model, images = model_and_images()
    with pytest.raises(ValueError, match=r"expected images \(B, 2, 8, 8\), got \(2, 8, 8\)"):
        probe.trace(model, images[0])
    with pytest.raises(ValueError, match="expected labels from 0 to 4, got 0 to 5"):
        probe.trace(model, images, [0, 1, 5])
    with pytest.raises(ValueError, match=r"expected 3 classes from 0 to 4, got \[0, 1\]"):
        probe.trace(model, images, classes=[0, 1])
    with pytest.raises(ValueError, match=r"expected 3 classes from 0 to 4, got \[0, 1, -1\]"):
        probe.trace(model, images, classes=[0, 1, -1])
    with pytest.raises(ValueError, match="expected targets or classes, got both"):
        probe.trace(model, images, [0, 1, 2], classes=[0, 1, 2])


def test_a_model_without_classes_is_traced_up_to_its_features_and_has_no_loss():
    model = redrawn(ViT(replace(CONFIG, num_classes=0), dtype="float64"))
    images = images_for(model, 0, 3)
    trace = probe.trace(model, images)
    np.testing.assert_array_equal(trace.logits, model(images)[0])
    np.testing.assert_array_equal(trace.values["head"], trace.logits)
    assert trace.probabilities is None and trace.logits.shape == (3, 12)
    for beginning in ({"targets": [0, 1, 2]}, {"classes": [0, 1, 2]}):
        with pytest.raises(ValueError, match="the model has no head"):
            probe.trace(model, images, **beginning)
