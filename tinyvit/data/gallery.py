"""A picture of every augmentation: python -m tinyvit.data.gallery OUT.png --data-dir FOLDER

Each row has an image of CIFAR-10's test set, first as it is and then as it becomes.
"""

from pathlib import Path

import numpy as np
import tyro

from tinyvit.data import geometry, load, policy
from tinyvit.data.augment import Augmentation, augment
from tinyvit.keys import Key

BLOCKS, SAMPLES = 2, 4  # rows side by side, and samples in a row
SEED = 6
RANDOM = {
    "crop": Augmentation(crop=4), "flip": Augmentation(flip=True), "erase": Augmentation(erase=1.0),
    "mixup": Augmentation(mixup=1.0), "cutmix": Augmentation(cutmix=1.0),
    "TrivialAugment": Augmentation(policy="trivial"), "RandAugment": Augmentation(policy="rand"),
}  # fmt: skip


def rows(dataset):
    """(name, images (1 + SAMPLES, C, H, W)) for every augmentation, the original first; levels from 0 to 255.

    An operation of the policies is shown over the range of TrivialAugment: from one side to the other, or from weak to
    strong.
    """
    order = iter(Key(SEED).generator().permutation(len(dataset)))
    for name, augmentation in RANDOM.items():
        chosen = np.full(SAMPLES, next(order))
        chosen[SAMPLES // 2 :] = next(order) if augmentation.mixup or augmentation.cutmix else chosen[0]  # the partners
        part = dataset.subset(chosen)
        images, _ = augment(part.images, part.labels, augmentation, dataset, Key(SEED))
        mean, std = (np.array(numbers)[:, None, None] for numbers in (dataset.mean, dataset.std))
        yield name, [part.images[0], *(images * std + mean) * dataset.scale]
    for name, spec in (policy.GEOMETRY | policy.COLOUR).items():
        image, least = dataset.images[next(order)], -0.8 if spec.signed else 0.25
        amounts = spec.trivial * np.linspace(least, 0.8, SAMPLES)[:, None]
        choices = policy.Choices(np.full(amounts.shape, policy.OPERATIONS.index(name)), amounts)
        moved = geometry.resample(np.stack([image] * SAMPLES), policy.matrices(choices, *image.shape[1:]))
        yield name, [image, *policy.recolour(moved.astype("float32"), choices, 255)]


def draw(dataset, path):
    """The picture of all rows as a PNG file."""
    from matplotlib.figure import Figure

    table, wide = list(rows(dataset)), 1 + SAMPLES
    deep = -(-len(table) // BLOCKS)
    figure = Figure(figsize=(BLOCKS * wide, deep), layout="constrained")
    places = figure.subplots(deep, BLOCKS * wide)
    for axes in places.flat:
        axes.set_axis_off()
    for i, (name, images) in enumerate(table):
        for axes, image in zip(places[i % deep, i // deep * wide :], images):
            axes.imshow(image.clip(0, 255).astype("uint8").transpose(1, 2, 0), interpolation="nearest")
        places[i % deep, i // deep * wide].set_title(name, fontsize=7)
    figure.savefig(path, format="png")


def main(out: tyro.conf.Positional[Path], data_dir: str | None = None):
    """Draw a picture of every augmentation.

    Args:
        out: The PNG file to write.
        data_dir: Folder or archive with CIFAR-10.
    """
    draw(load("cifar10", data_dir).test, out)


if __name__ == "__main__":
    tyro.cli(main, prog="python -m tinyvit.data.gallery")
