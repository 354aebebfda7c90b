"""Common to `tinyvit probe-linear` and `tinyvit knn`: a data set as the features of a trained model."""

import json
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from tinyvit.cli.features import described, described_layer, layer_number
from tinyvit.cli.model_options import ModelOptions
from tinyvit.cli.parsing import BadInput


@dataclass(frozen=True, kw_only=True)
class ProbingOptions(ModelOptions):
    """The options of both."""

    data: Literal["digits", "cifar10", "cifar100", "folder"] | None = None
    """Which images and classes; by default the data set, and its classes, that the run was trained on."""
    data_dir: str | None = None
    """Folder or archive with the data; by default the one that the run was trained with."""
    classes: tuple[str, ...] = ()
    """Only these classes of the data, by name."""
    images: int | None = None
    """Learn from so many of the training images, equally many of each class, drawn by the seed; by default from all."""
    layer: str | None = None
    """0 for what the first layer reads, i for what layer i gives; −1 is the last layer, and `all` are all layers, one
    after the other. By default what the head reads, after the final norm."""
    pool: Literal["token", "mean"] | None = None
    """The first token, such as a ViT's class token, or the mean over the patches; by default as the model does it."""
    seed: int = 0
    """Seed of what is drawn from the training images."""


class Subject(NamedTuple):
    """A `Trained`, a Split prepared for it, and the layers to probe and how to pool them."""

    trained: Any
    split: Any
    layers: list[int | None]
    pool: str


def load_subject(run_path, options):
    """The `Subject` that the options name; ValueError if there is none."""
    from tinyvit.training.features import checked_pool
    from tinyvit.training.threads import thread_count
    from tinyvit.training.trained import load_prepared_data, load_trained

    if options.seed < 0:
        raise BadInput(f"expected a seed of at least 0, got {options.seed}")
    thread_count(options.threads)
    trained = load_trained(run_path, options.device, options.best)
    layers, pool = layers_of(trained.model, options.layer), checked_pool(trained.model, options.pool)
    split = load_prepared_data(
        trained, options.data, options.data_dir, options.classes, options.images, options.seed
    )  # fmt: skip
    return Subject(trained, split, layers, pool)


def layers_of(model, text):
    """The layers that --layer names, as `features_by_layer` takes them."""
    from tinyvit.training.features import checked_layer

    if text is None:
        return [None]
    if text == "all":
        return [*range(model.depth + 1), None]
    return [checked_layer(model, layer_number(text, "a number, or all"))]


def by_layer(subject, options, classify):
    """For each layer classify(train, test), and how many features it has; train and test are (features, labels)."""
    from tinyvit.levels import using
    from tinyvit.training.features import features_by_layer
    from tinyvit.training.inference import memory_to_evaluate

    trained, split, layers, pool = subject
    with using(options.kernels), memory_to_evaluate(trained.model):
        train, test = (
            features_by_layer(trained.model, part, layers, pool=pool, threads=options.threads) for part in split
        )
    labels, test_labels = split.train.labels, split.test.labels
    return [{**classify((x, labels), (y, test_labels)), "features": x.shape[1]} for x, y in zip(train, test)]


def print_found(subject, options, found, columns, settings):
    """Print what was found at each layer.

    found     a dict for each layer: "test_accuracy", and other entries for JSON
    columns   (title, function from such a dict to text) of the columns after the accuracy
    settings  the settings of all layers
    """
    trained, split, layers, pool = subject
    dataset = options.data or trained.config.dataset
    if options.json:
        rows = [{"layer": layer, **row} for layer, row in zip(layers, found)]
        about = {
            **settings, "pool": pool, "dataset": dataset, "classes": split.train.classes,
            "train_images": len(split.train), "test_images": len(split.test),
        }  # fmt: skip
        print(json.dumps({**({"layers": rows} if len(rows) > 1 else rows[0]), **about}, allow_nan=False))
        return
    from tinyvit.training.display import percent, table

    columns = [("test accuracy", lambda row: percent(row["test_accuracy"])), *columns]
    places = [described_layer(trained.model, layer) for layer in layers]
    rows, where = [(title, text(found[0])) for title, text in columns], f" {places[0]}"
    if len(layers) > 1:
        cells = [["layer", *(title for title, _ in columns)]]
        cells += [[place, *(text(row) for _, text in columns)] for place, row in zip(places, found)]
        print(in_columns(cells) + "\n")
        rows, where = [], ""
    rows += [(name, f"{value:g}") for name, value in settings.items()]
    widths = sorted({row["features"] for row in found})
    width = " to ".join(map(str, widths[:: max(1, len(widths) - 1)]))
    rows += [
        ("features", f"{width}: {described(trained.model, pool)}{where}"),
        ("training images", f"{len(split.train):,} of {dataset}, {len(split.train.classes)} classes"),
        ("test images", f"{len(split.test):,}"),
    ]
    print(table(rows))


def in_columns(rows):
    """Rows of text as lines: the first column flush left, the others flush right."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = []
    for first, *others in rows:
        right = [f"{cell:>{width}}" for cell, width in zip(others, widths[1:])]
        lines.append("   ".join([f"  {first:<{widths[0]}}", *right]))
    return "\n".join(lines)
