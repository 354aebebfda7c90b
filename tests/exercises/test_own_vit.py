"""A learner's own ViT is trained by the package's loop, after its gradients were checked."""

from types import SimpleNamespace

import numpy as np
import pytest

from tinyvit import ViT, exercises
from tinyvit import functional as F
from tinyvit.exercises import own_vit
from tinyvit.exercises.exercise import MISTAKES
from tinyvit.exercises.topics.vit import vit
from tinyvit.exercises.topics.vit_backward import vit_backward

WRITTEN = SimpleNamespace(vit=vit, vit_backward=vit_backward)


@pytest.mark.end_to_end
def test_one_epoch_with_right_functions_gives_what_the_packages_model_gives(capsys):
    result = exercises.train(WRITTEN, epochs=1, seed=1)
    assert result and result.seconds > 0 and result.package_seconds > 0
    assert abs(result.accuracy - result.package_accuracy) < 0.02  # rounding in float32 may move an image
    printed = " ".join(capsys.readouterr().out.split())
    assert "vit_backward: right." in printed and "The package's own model, trained alike" in printed
    assert f"{result.accuracy:.2%}" in result.answer


@pytest.mark.end_to_end
def test_the_learners_functions_are_what_is_trained():
    calls = []

    def counted(*arguments):
        calls.append(len(arguments[0]))
        return vit_backward(*arguments)

    assert exercises.train(SimpleNamespace(vit=vit, vit_backward=counted), epochs=1, compare=False)
    assert calls.count(64) >= 20


@pytest.mark.parametrize("dtype, bound", [("float64", 1e-12), ("float32", 1e-4)])
def test_the_gradients_in_the_training_are_the_packages(dtype, bound):
    config = own_vit.config_for("digits", 1, 0, None)
    model, own = (ViT(config.model, dtype=dtype) for _ in range(2))
    rng = np.random.default_rng(0)
    state = {name: rng.normal(0, 0.2, x.shape) for name, x in model.state_dict().items()}
    model.load_state_dict(state)
    own.load_state_dict(state)
    own_vit.hand_over(own, WRITTEN)
    images, labels = rng.normal(size=(5, 1, 8, 8)).astype(dtype), rng.integers(0, 10, 5)
    for each in (model, own):
        each.zero_grad()
        logits, cache = each(images)
        each.backward(F.cross_entropy_backward(1.0, F.cross_entropy(logits, labels)[1]), cache)
    for (name, expected), (_, got) in zip(model.named_parameters(), own.named_parameters()):
        np.testing.assert_allclose(got.grad, expected.grad, atol=bound * max(1, abs(expected.grad).max()), err_msg=name)
    assert own.storage.gradients().any()


@pytest.mark.parametrize("mistake", MISTAKES["vit_backward"][:3], ids=lambda mistake: mistake.name)
def test_a_wrong_gradient_is_named_and_not_trained(mistake, monkeypatch, capsys):
    monkeypatch.setattr(own_vit, "run_training", lambda *arguments: pytest.fail("it was trained"))
    wrong = SimpleNamespace(vit=vit, vit_backward=mistake.formula)
    result = exercises.train(wrong, epochs=1)
    assert not result and result.accuracy is None and "Nothing was trained" in result.answer
    assert mistake.name in " ".join(capsys.readouterr().out.split())


def test_a_function_that_fails_in_the_training_is_answered_in_words():
    def only_small_batches(images, *rest):
        if len(images) > 8:
            raise RuntimeError("too many images")
        return vit(images, *rest)

    result = exercises.train(SimpleNamespace(vit=only_small_batches, vit_backward=vit_backward), epochs=1)
    assert not result and "RuntimeError in the training" in result.answer and "too many images" in result.answer


def test_what_is_missing_or_unknown_is_said():
    with pytest.raises(TypeError, match="has no vit_backward"):
        exercises.train(SimpleNamespace(vit=vit))
    with pytest.raises(ValueError, match="'digits' or 'cifar10', got 'mnist'"):
        exercises.train(WRITTEN, data="mnist")


def test_cifar10_is_trained_with_a_small_model_of_the_same_kind_on_some_of_the_images():
    config = own_vit.config_for("cifar10", 1, 0, "FOLDER", images=500)
    model = config.model
    assert (model.img_size, model.global_pool, model.positions, model.num_classes) == (32, "token", "learned", 10)
    assert (model.patch_size, model.embed_dim, model.depth, config.images) == (8, 64, 4, 500)


def test_some_of_the_digits_can_be_trained_on(capsys):
    result = exercises.train(WRITTEN, epochs=1, images=100, compare=False)
    assert result and "1 epochs of 2 steps on digits" in capsys.readouterr().out
