"""A picture of every augmentation: python -m tinyvit.data.gallery OUT.png --data-dir FOLDER

Each row has an image of CIFAR-10's test set, first as it is and then as it becomes, with the amount below.
"""

import argparse
from pathlib import Path

import numpy as np

from tinyvit.backend import Key
from tinyvit.data import geometry, load, policy
from tinyvit.data.augment import Augmentation, augment
from tinyvit.data.mixing import cutmix, mixup, random_box
from tinyvit.files import replacing

BLOCKS, SAMPLES = 2, 4                     # rows side by side, and samples in a row
STRENGTHS = {True: (-0.8, -0.4, 0.4, 0.8), False: (0.25, 0.5, 0.75, 1)}  # of signed operations, and of others
SHARES = (0.8, 0.6, 0.4, 0.2)
SEED = 6


def rows(dataset):
    """(name, [(image (C, H, W), caption), …]) for every augmentation; the original first."""
    order = iter(Key(SEED).generator().permutation(len(dataset)))
    random = {
        "crop": Augmentation(crop=4),
        "flip": Augmentation(flip=True),
        "erase": Augmentation(erase=1.0),
        "TrivialAugment": Augmentation(policy="trivial"),
        "RandAugment": Augmentation(policy="rand"),
    }
    for name, augmentation in random.items():
        yield name, drawn(dataset, next(order), augmentation)
    yield from mixed(dataset.images[[next(order), next(order)]].astype("float32"))
    for name, spec in (policy.GEOMETRY | policy.COLOUR).items():
        image = dataset.images[next(order)]
        amounts = [strength * spec.trivial for strength in STRENGTHS[spec.signed]] if spec.trivial else [0]
        yield name, [(image, "original"), *((done(image, name, a), caption(name, a)) for a in amounts)]


def drawn(dataset, row, augmentation):
    """Samples as the model gets them, with the normalisation undone."""
    chosen = np.full(SAMPLES, row)
    images, _ = augment(dataset.images[chosen], dataset.labels[chosen], augmentation, dataset, Key(SEED))
    mean, std = (np.array(numbers)[:, None, None] for numbers in (dataset.mean, dataset.std))
    return [(dataset.images[row], "original"), *((image, "") for image in (images * std + mean) * dataset.scale)]


def mixed(images):
    """Mixup and cutmix of two images."""
    whole, generator = np.eye(2), Key(SEED).generator()
    kinds = {
        "mixup": lambda share: mixup(images, whole, share),
        "cutmix": lambda share: cutmix(images, whole, random_box(generator, share, *images.shape[2:])),
    }
    for name, mix in kinds.items():
        samples = [mix(share) for share in SHARES[: SAMPLES - 1]]
        captions = [f"λ = {targets[0, 0]:.2f}" for _, targets in samples]
        yield name, [*zip(images, ("original", "partner")), *((x[0], text) for (x, _), text in zip(samples, captions))]


def done(image, name, amount):
    """One operation of the policy."""
    choices = policy.Choices(np.array([[policy.OPERATIONS.index(name)]]), np.array([[float(amount)]]))
    moved = geometry.resample(image[None], policy.matrices(choices, *image.shape[1:]))
    return policy.recolour(moved.astype("float32"), choices, 255)[0]


def caption(name, amount):
    """The amount as the paper states it."""
    if name in ("autocontrast", "equalize"):
        return ""
    if name in ("brightness", "contrast", "saturation", "sharpness"):
        return f"× {1 + amount:.1f}"
    if name == "posterize":
        return f"{8 - int(amount + 0.5)} bits"
    if name == "solarize":
        return f"from {256 - amount:.0f}"
    return f"{amount:+.0f}°".replace("-", "−") if name == "rotate" else f"{amount:+.1f}".replace("-", "−")


def draw(dataset, path):
    """The picture of all rows as a PNG file."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    table, wide = list(rows(dataset)), 1 + SAMPLES
    deep = -(-len(table) // BLOCKS)
    figure, places = plt.subplots(deep, BLOCKS * wide, figsize=(BLOCKS * wide, deep), layout="constrained")
    for axes in places.flat:
        axes.set_axis_off()
    for i, (name, samples) in enumerate(table):
        for j, (image, text) in enumerate(samples):
            axes = places[i % deep, i // deep * wide + j]
            axes.imshow(image.clip(0, 255).astype("uint8").transpose(1, 2, 0), interpolation="nearest")
            axes.set_title(text if j else name, fontsize=7)
    with replacing(path) as file:
        figure.savefig(file, format="png")
    plt.close(figure)


def main(args=None):
    parser = argparse.ArgumentParser(prog="python -m tinyvit.data.gallery", description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="the PNG file to write")
    parser.add_argument("--data-dir", help="folder or archive with CIFAR-10")
    options = parser.parse_args(args)
    draw(load("cifar10", options.data_dir).test, options.out)


if __name__ == "__main__":
    main()
