from dataclasses import replace

import numpy as np
import pytest
from steps import advance

from tinyvit.data import Dataset, Split
from tinyvit.models.architecture import image_shape
from tinyvit.training import PRESETS, preset
from tinyvit.training.trainer import Trainer

BATCH = 8


@pytest.fixture
def random_images(monkeypatch):
    """Replaces every data set by random images of its size and classes."""

    def load(config):
        generator, c = np.random.default_rng(0), config.model
        shape, classes = image_shape(c), tuple(map(str, range(c.num_classes)))
        shown = [c.num_classes] * 2  # classes with training and with test images
        if config.task == "clip":  # the last one is unseen
            classes, shown = ("red one", "blue two", "green six"), [2, 3]
        pixels = shape[1:] if config.task == "segmentation" else ()
        parts = [
            Dataset(generator.integers(0, 256, (n, *shape), dtype="uint8"),
                    generator.integers(0, K, (n, *pixels)) if pixels else generator.permutation(np.arange(n) % K),
                    classes, (0.5,) * c.in_chans, (0.25,) * c.in_chans)
            for n, K in zip((4 * BATCH, BATCH), shown)
        ]  # fmt: skip
        return Split(*parts)

    monkeypatch.setattr("tinyvit.training.trainer.load_split", load)


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", PRESETS)
def test_the_first_steps_of_every_recipe_run_on_a_cpu(random_images, name):
    config = replace(preset(name), batch_size=BATCH, epochs=3, device="cpu")
    trainer = Trainer(config)
    before, losses = trainer.model.storage.data.copy(), []
    for _ in range(config.epochs):
        for batch in trainer.batches():
            losses.append(float(advance(trainer, batch).loss))
        trainer.row(trainer.evaluate(), 0.0)
        trainer.end_epoch()
    assert trainer.finished and len(losses) == 12
    assert np.isfinite(losses).all() and trainer.faults.skipped == 0
    assert (trainer.model.storage.data != before).any()
    if config.task in ("classification", "segmentation"):  # the head starts at zero: every class is equally likely
        assert losses[0] == pytest.approx(np.log(config.model.num_classes), rel=1e-4)
