"""The task segmentation: a class for each pixel."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import jaccard_score
from strategies import redrawn
from task_gradients import assert_gradient_is_that_of_the_complex_step

from tinyvit import Context, Key, optim
from tinyvit.data import Dataset
from tinyvit.models import SegmenterConfig, ViTConfig
from tinyvit.training import TrainConfig
from tinyvit.training.step import train_step
from tinyvit.training.tasks import task_class
from tinyvit.training.tasks.segmentation import mean_iou, overlaps

MODEL = SegmenterConfig("vit", dict(patch_size=4, embed_dim=8, depth=1, num_heads=2), img_size=8, num_classes=3)


def begun(head="pixel", **changes):
    """The task, with a random model in float64, and a batch of six images, in which ever more pixels are ignored."""
    model = replace(MODEL, head=head)
    config = TrainConfig("segment-digits", model, "segmenter", "segmentation", device="cpu", **changes)
    task = task_class("segmentation")(config)
    model, generator = redrawn(task.build(device="cpu", precision="float64")), np.random.default_rng(1)
    labels = generator.integers(0, 3, (6, 8, 8))
    labels[generator.random((6, 8, 8)) < np.linspace(0, 1, 6)[:, None, None]] = 255
    return task, model, task.batch(generator.standard_normal((6, 3, 8, 8)), labels, Key(0, 3))


def test_the_gradient_of_the_loss_is_that_of_the_complex_step():
    assert_gradient_is_that_of_the_complex_step(*begun("mask"))


@pytest.mark.parametrize("threads", [1, 2, 3, 6])
def test_parts_with_unequal_numbers_of_counted_pixels_give_the_gradient_of_the_whole_batch(threads):
    task, model, batch = begun("mask")
    loss, backward, metrics, _ = task.loss(model, batch, None)
    model.zero_grad()
    backward()
    expected = model.storage.gradients().copy()
    result = train_step(model, optim.SGD(model, 0.0), batch, None, Context(True, Key(0, 0)), objective=task.loss,
                        threads=threads)  # fmt: skip
    np.testing.assert_allclose(model.storage.gradients(), expected, rtol=1e-12, atol=1e-14)
    assert result.loss == pytest.approx(loss, rel=1e-12)
    assert result.metrics["pixel_accuracy"] == pytest.approx(metrics["pixel_accuracy"], rel=1e-12)


def test_without_a_pixel_that_counts_loss_and_gradients_are_zero():
    task, model, batch = begun()
    loss, backward, metrics, _ = task.loss(model, batch | {"labels": np.full((6, 8, 8), 255)}, None)
    backward()
    assert loss == 0 == metrics["pixel_accuracy"] and not model.storage.gradients().any()


def test_the_mean_iou_is_of_one_confusion_matrix_over_classes_in_truth_or_prediction():
    generator = np.random.default_rng(0)
    truth, said = generator.integers(0, 4, (2, 500))
    said[said == 2] = 3  # never predicted; class 4 is in neither
    confusion = np.zeros((5, 5), int)
    np.add.at(confusion, (truth, said), 1)
    expected = jaccard_score(truth, said, average=None)
    np.testing.assert_allclose(overlaps(confusion)[:4], expected, rtol=1e-12)
    assert np.isnan(overlaps(confusion)[4]) and mean_iou(confusion) == pytest.approx(expected.mean())
    assert mean_iou(np.zeros((3, 3), int)) == 0 and mean_iou(np.eye(3, dtype=int)) == 1


def test_what_is_evaluated_is_what_the_model_predicts_of_the_pixels_that_count():
    task, model, batch = begun()
    images, labels = batch["images"].astype("float32"), batch["labels"]
    model.to("float32")
    dataset = Dataset(images, labels, tuple("abc"), (0.0,) * 3, (1.0,) * 3, 1.0)
    scores, said = task.evaluate(model, dataset, 2), model.predict(images).argmax(1)
    assert list(scores) == ["mean_iou", "pixel_accuracy", "test_loss"] and task.headline == "mean_iou"
    counted = labels != 255
    pairs = labels[counted], said[counted]
    assert scores["pixel_accuracy"] == pytest.approx((pairs[0] == pairs[1]).mean())
    assert scores["mean_iou"] == pytest.approx(jaccard_score(*pairs, average="macro"))
    assert scores["test_loss"] == pytest.approx(float(task.loss(model, batch, None)[0]), rel=1e-5)
    report = task.report(model, dataset)
    assert np.sum(report.figures["confusion"]) == counted.sum() and set(report.figures["per_class"]) == set("abc")
    assert task.evaluate(model, dataset, stop=[True]) is None


def test_other_architectures_and_tasks_are_refused():
    with pytest.raises(ValueError, match="architecture must be segmenter for the task 'segmentation', got 'vit'"):
        TrainConfig("segment-digits", ViTConfig(), task="segmentation")
    with pytest.raises(ValueError, match="can't serve the task 'classification': it is for the task 'segmentation'"):
        TrainConfig("segment-digits", MODEL, "segmenter")
