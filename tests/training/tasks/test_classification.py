from dataclasses import replace

import numpy as np
import pytest
from strategies import redrawn

from tinyvit import Context, Key, ViT, ViTConfig
from tinyvit.data import Dataset
from tinyvit.training import PRESETS, classification
from tinyvit.training.tasks import task_class

CONFIG = ViTConfig(img_size=8, patch_size=2, in_chans=1, num_classes=3, embed_dim=8, depth=2, num_heads=2)
TRAINING = Context(training=True, key=Key(0, 1))


def batch(seed=0, size=4, dtype="float64"):
    generator = np.random.default_rng(seed)
    return generator.standard_normal((size, 1, 8, 8)).astype(dtype), generator.integers(0, 3, size)


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


@pytest.mark.parametrize("keep", [0.5, 1.0])
def test_features_are_not_taken_for_logits(keep):
    model, (images, labels) = ViT(replace(CONFIG, num_classes=0)), batch()
    with pytest.raises(ValueError, match="the model has no head .* here logits are needed"):
        classification(keep=keep)(model, images, labels, TRAINING)


def test_a_model_that_gives_nearly_all_images_one_class_is_warned_of_once():
    """An untrained head gives all classes the same logit, and argmax takes the first of them."""
    (images, _), model = batch(size=20, dtype="float32"), ViT(CONFIG)

    def warnings(labels):
        task = task_class("classification")(replace(PRESETS["digits"], model=CONFIG))
        dataset = Dataset(images, np.array(labels), ("a", "b", "c"), (0.0,), (1.0,), scale=1.0)
        return [task.warning(task.evaluate(model, dataset, 1)) for _ in range(4)]

    first, second, *later = warnings([0, 1] * 10)
    assert "more than 90 % of the test images got the same class" in second and {first, *later} == {None}
    assert warnings([0] * 20) == [None] * 4, "it is right: all images are of that class"
