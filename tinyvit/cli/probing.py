"""tinyvit probe-linear and tinyvit knn: how well a trained model's features tell the classes of a data set apart."""

import json
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from tinyvit.cli.features import described, described_layer, layer_number
from tinyvit.cli.model_options import ModelOptions, computing_together
from tinyvit.cli.parsing import parse


@dataclass(frozen=True, kw_only=True)
class ProbingOptions(ModelOptions):
    """The options of both."""

    data: Literal["digits", "moving-digits", "coloured-digits", "cifar10", "cifar100", "folder"] | None = None
    """Which images and classes; by default the data set, and its classes, that the run was trained on."""
    data_dir: str | None = None
    """Folder or archive with the data; by default the one that the run was trained with."""
    classes: tuple[str, ...] = ()
    """Only these classes of the data, by name."""
    images: int | None = None
    """Learn from this many training images, equally many of each class, drawn by the seed; by default from all."""
    layer: str | None = None
    """0 for what the first layer reads, i for what layer i gives; −1 is the last layer, and `all` are all layers, one
    after the other. By default what the head reads, after the final norm."""
    pool: Literal["token", "mean"] | None = None
    """The first token, such as a ViT's class token, or the mean over the patches; by default as the model does it."""
    seed: int = 0
    """Seed of what is drawn from the training images."""


@dataclass(frozen=True)
class ProbeLinearOptions(ProbingOptions):
    """How well logistic regression tells classes apart by a trained model's features, which stay as they are: the
    accuracy on the test images."""

    C: float | None = None
    """Inverse strength of the L2 regularisation; by default the best of several on a fifth of the training
    images."""


@dataclass(frozen=True)
class KnnOptions(ProbingOptions):
    """How well the nearest training images, by the cosine of a trained model's features, tell the classes of the test
    images: each of k neighbours votes with the weight exp(cosine/temperature), as in Wu et al. 2018."""

    k: int = 20
    """Neighbours that vote."""
    temperature: float = 0.07
    """The lower, the more the nearest of them count."""


def probe_linear(rest):
    """tinyvit probe-linear RUN"""
    options = parse(ProbeLinearOptions, rest, "tinyvit probe-linear")

    from tinyvit.training.feature_classifiers import check_strength, held_out, linear_probe

    if options.C is not None:
        check_strength(options.C)
    subject = load_subject(options)
    if options.C is None:
        held_out(subject.split.train.labels, options.seed)  # raises before minutes are spent

    def classify(train, test):
        probe = linear_probe(train, test, C=options.C, seed=options.seed)
        tried = [{"C": C, "accuracy": accuracy} for C, accuracy in probe.tried]
        return {"test_accuracy": probe.accuracy, "C": probe.C, "tried": tried}

    found = by_layer(subject, options, classify)
    held = [("held out for C", held_out_accuracy)] if options.C is None else []
    print_found(subject, options, found, [("C", lambda row: f"{row['C']:g}"), *held], {})


def held_out_accuracy(row):
    """The accuracy of a layer's probe where its C was chosen."""
    from tinyvit.training.display import percent

    return percent(next(trial["accuracy"] for trial in row["tried"] if trial["C"] == row["C"]))


def knn(rest):
    """tinyvit knn RUN"""
    options = parse(KnnOptions, rest, "tinyvit knn")

    from tinyvit.training.feature_classifiers import check_votes, nearest_neighbours

    subject = load_subject(options)
    check_votes(len(subject.split.train), options.k, options.temperature)

    def classify(train, test):
        found = nearest_neighbours(train, test, k=options.k, temperature=options.temperature)
        return {"test_accuracy": found.accuracy}

    found = by_layer(subject, options, classify)
    print_found(subject, options, found, [], {"k": options.k, "temperature": options.temperature})


class Subject(NamedTuple):
    """A `Trained`, a Split prepared for it, and the layers to probe and how to pool them."""

    trained: Any
    split: Any
    layers: list[int | None]
    pool: str


def load_subject(options):
    """The `Subject` that the options name; ValueError if there is none."""
    from tinyvit.training.features import checked_pool
    from tinyvit.training.threads import thread_count
    from tinyvit.training.trained import load_prepared_data

    if options.seed < 0:
        raise ValueError(f"expected a seed of at least 0, got {options.seed}")
    thread_count(options.threads)
    trained = options.load()
    layers, pool = layers_of(trained.model, options.layer), checked_pool(trained.model, options.pool)
    split = load_prepared_data(trained, options.data, options.data_dir, options.classes, options.images, options.seed)
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
    from tinyvit.training.features import features_by_layer

    trained, split, layers, pool = subject
    with computing_together(trained, options):
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
