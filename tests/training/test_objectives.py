from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from strategies import seeds

from tinyvit import Context, Key, ViT, ViTConfig
from tinyvit.training import classification
from tinyvit.training.objectives import some_patches

CONFIG = ViTConfig(img_size=8, patch_size=2, in_chans=1, num_classes=3, embed_dim=8, depth=2, num_heads=2)
TRAINING = Context(training=True, key=Key(0, 1))


def batch(seed=0, size=4, dtype="float64"):
    generator = np.random.default_rng(seed)
    return generator.standard_normal((size, 1, 8, 8)).astype(dtype), generator.integers(0, 3, size)


def redrawn(model, seed=0):
    """The model with every parameter from N(0, 0.2): at first its head is zero, and so are the trunk's gradients."""
    model.storage.data[:] = 0.2 * np.random.default_rng(seed).standard_normal(model.storage.size)
    return model


@pytest.mark.parametrize("keep", [0.25, 0.5, 1.0])
def test_the_gradient_of_the_loss_matches_the_complex_step(keep):
    objective, (images, labels) = classification(0.1, keep), batch()
    model = redrawn(ViT(CONFIG, dtype="float64"))
    model.zero_grad()
    _, backward, _ = objective(model, images, labels, TRAINING)
    backward(1.0)
    generator, expected = np.random.default_rng(1), 0.0
    moved = ViT(CONFIG, dtype="complex128")
    moved.load_state_dict(model.state_dict())
    for (_, parameter), (_, moving) in zip(model.named_parameters(), moved.named_parameters(), strict=True):
        direction = generator.standard_normal(parameter.shape)
        expected += (parameter.grad * direction).sum()
        moving.data += 1e-30j * direction
    loss, _, _ = objective(moved, images, labels, TRAINING)
    assert expected == pytest.approx(loss.imag / 1e-30, rel=1e-10)


@given(seed=seeds())
def test_patches_are_drawn_without_repetition_behind_the_class_token(seed):
    tokens = np.zeros((3, 17, 2))
    index = some_patches(tokens, 0.5, Key(seed))
    assert index.shape == (3, 9) and (index[:, 0] == 0).all()
    assert all(len(set(row)) == 9 and set(row) <= set(range(17)) for row in index.tolist())


def test_every_patch_is_as_likely_as_any_other():
    index = some_patches(np.zeros((20_000, 17, 1)), 0.25, Key(0))
    counts = np.bincount(index[:, 1:].ravel(), minlength=17)[1:]
    assert np.abs(counts / 20_000 - 0.25).max() < 5 * (0.25 * 0.75 / 20_000) ** 0.5


def test_another_step_sees_other_patches():
    tokens = np.zeros((3, 17, 2))
    assert (some_patches(tokens, 0.5, Key(0, 1)) != some_patches(tokens, 0.5, Key(0, 2))).any()


def test_a_sample_sees_the_same_patches_however_the_batch_was_split():
    whole = some_patches(np.zeros((5, 17, 2)), 0.5, Key(0))
    rest = some_patches(np.zeros((3, 17, 2)), 0.5, Key(0).skip(2))
    np.testing.assert_array_equal(whole[2:], rest)


def test_a_share_too_small_for_a_patch_leaves_one():
    assert some_patches(np.zeros((2, 5, 2)), 0.01, Key(0)).shape == (2, 2)


def test_the_accuracy_of_mixed_targets_counts_the_likelier_class():
    images, labels = batch(dtype="float32")
    model = redrawn(ViT(CONFIG))
    soft = 0.7 * np.eye(3)[labels] + 0.3 * np.eye(3)[(labels + 1) % 3]
    hard = classification()(model, images, labels, None)[2]["accuracy"]
    assert classification()(model, images, soft.astype("float32"), None)[2]["accuracy"] == hard


@pytest.mark.parametrize("keep", [0.5, 1.0])
def test_features_are_not_taken_for_logits(keep):
    model, (images, labels) = ViT(replace(CONFIG, num_classes=0)), batch()
    with pytest.raises(ValueError, match="the model has no head .* here logits are needed"):
        classification(keep=keep)(model, images, labels, TRAINING)
