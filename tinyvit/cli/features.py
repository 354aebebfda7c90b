"""tinyvit features, tinyvit probe-linear and tinyvit knn: the features of a trained model, and how well they tell the
classes of a data set apart."""

import json
from dataclasses import dataclass
from typing import Literal

from tinyvit.cli.model_options import FileOptions, ModelOptions, Readable, computing_together
from tinyvit.cli.parsing import parse
from tinyvit.training.display import percent, table
from tinyvit.training.feature_classifiers import check_strength, check_votes, held_out, linear_probe, nearest_neighbours
from tinyvit.training.features import (
    check_new_files,
    checked_layer,
    checked_pool,
    features_by_layer,
    features_of_files,
    save_features,
)
from tinyvit.training.threads import thread_count
from tinyvit.training.trained import load_prepared_data


@dataclass(frozen=True, kw_only=True)
class FeaturesOptions(FileOptions):
    """Features of images of your own, as a .npy file with a row for each image. IMAGE is a file that Pillow reads, or a
    folder, of which all images are taken. A file that can't be read is named on stderr and gets no row; the exit status
    is then 2."""

    out: str
    """The .npy file to write: float32 (n, D), as numpy.load reads it."""
    names: str | None = None
    """The text file to write the paths of the images to, a line for each row; by default as --out, ending with .txt."""
    layer: str | None = None
    """0 for what the first layer reads, i for what layer i gives; −1 is the last layer. By default what the head
    reads, after the final norm."""
    pool: Literal["token", "mean"] | None = None
    """The first token, such as a ViT's class token, or the mean over the patches; by default as the model does it."""


def features(rest):
    """tinyvit features RUN IMAGE… --out FILE.npy"""
    options = parse(FeaturesOptions, rest, "tinyvit features")
    out, names = check_new_files(options.out, options.names)
    trained = options.load()
    model, readable = trained.model, Readable()
    layer = None if options.layer is None else checked_layer(model, layer_number(options.layer, "one number"))
    pool = checked_pool(model, options.pool)
    with computing_together(trained, options) as ranks:
        files = features_of_files(model, trained.preprocessing, options.images, layer=layer, pool=pool,
                                  threads=options.threads)  # fmt: skip
        rows = readable.of(on_one_line(files))
        count, width = save_features(rows, out, names) if ranks.leads else (len(list(rows)), None)
    unreadable = readable.others
    if options.json:
        written = {"out": str(out), "names": str(names)} if count else {"out": None, "names": None}
        found = {"images": count, "unreadable": unreadable, "features": width}
        print(json.dumps({**found, "layer": layer, "pool": pool, **written}))
    else:
        rows = [("images", f"{count:,}" + f", and {unreadable:,} that can't be read" * (unreadable > 0))]
        if count:
            what = f"{width}: {described(model, pool)} {described_layer(model, layer)}"
            rows += [("features", what), ("written to", str(out)), ("names", str(names))]
        else:
            rows.append(("written to", "nowhere, as there is nothing to write"))
        print(table(rows))
    return 2 if unreadable else 0


def layer_number(text, expected):
    """The number that --layer was given; ValueError, with what is expected, for anything else."""
    number = text.replace("−", "-")
    if not number.removeprefix("-").isdecimal():
        raise ValueError(f"expected --layer as {expected}, got {text!r}")
    return int(number[:20])  # no model has so many layers, and Python refuses to read thousands of digits


def on_one_line(files):
    """The same files; those whose path has a line break, which the list of names can't hold, with an error."""
    for file in files:
        if file.error is None and set("\r\n") & set(str(file.path)):
            error = f"{str(file.path)!r} has a line break in its name, which the list of names can't hold"
            file = file._replace(features=None, error=error)
        yield file


def described(model, pool):
    """The vector of an image in words; `pool` as `checked_pool` returns it."""
    if pool == "token":
        return model.first_token
    return "mean over all places" if model.grid is None else "mean over the patches"


def described_layer(model, layer):
    """The layer of the features in words; `layer` as `checked_layer` returns it."""
    if layer is None:
        return "as the head reads it"
    return f"after layer {layer} of {model.depth}" if layer else "before the first layer"


# -- probe-linear and knn ----------------------------------------------------------------------------------------------


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
    if options.C is not None:
        check_strength(options.C)

    def check(split):
        if options.C is None:
            held_out(split.train.labels, options.seed)

    def classify(train, test):
        probe = linear_probe(train, test, C=options.C, seed=options.seed)
        tried = [{"C": C, "accuracy": accuracy} for C, accuracy in probe.tried]
        held = {"held out for C": percent(dict(probe.tried)[probe.C])} if tried else {}
        return {"test_accuracy": probe.accuracy, "C": probe.C, "tried": tried}, {"C": f"{probe.C:g}", **held}

    by_layer(options, check, classify, {})


def knn(rest):
    """tinyvit knn RUN"""
    options = parse(KnnOptions, rest, "tinyvit knn")
    settings = {"k": options.k, "temperature": options.temperature}

    def check(split):
        check_votes(len(split.train), **settings)

    def classify(train, test):
        return {"test_accuracy": nearest_neighbours(train, test, **settings).accuracy}, {}

    by_layer(options, check, classify, settings)


def by_layer(options, check, classify, settings):
    """Classify by the features of each layer that the options name, and print what was found.

    check     function of a Split that raises ValueError where it can't be classified, before minutes are spent
    classify  function from (features, labels) to train on and to test on to the numbers, for JSON, and further columns
    settings  the settings of all layers
    """
    if options.seed < 0:
        raise ValueError(f"expected a seed of at least 0, got {options.seed}")
    thread_count(options.threads)
    trained = options.load()
    model = trained.model
    layers, pool = layers_of(model, options.layer), checked_pool(model, options.pool)
    split = load_prepared_data(trained, options.data, options.data_dir, options.classes, options.images, options.seed)
    check(split)
    with computing_together(trained, options):
        train, test = (features_by_layer(model, part, layers, pool=pool, threads=options.threads) for part in split)
    labels, test_labels, widths = split.train.labels, split.test.labels, [x.shape[1] for x in train]
    found = [classify((x, labels), (y, test_labels)) for x, y in zip(train, test)]
    dataset, classes = options.data or trained.config.dataset, split.train.classes
    if options.json:
        rows = [{"layer": layer, **row, "features": width} for layer, (row, _), width in zip(layers, found, widths)]
        about = {
            **settings, "pool": pool, "dataset": dataset, "classes": classes, "train_images": len(split.train),
            "test_images": len(split.test),
        }  # fmt: skip
        print(json.dumps({**({"layers": rows} if len(rows) > 1 else rows[0]), **about}, allow_nan=False))
        return
    places = [described_layer(model, layer) for layer in layers]
    shown = [{"test accuracy": percent(row["test_accuracy"]), **more} for row, more in found]
    rows, where = list(shown[0].items()), f" {places[0]}"
    if len(layers) > 1:
        cells = [[place, *row.values()] for place, row in zip(places, shown)]
        print(in_columns([["layer", *shown[0]], *cells]) + "\n")
        rows, where = [], ""
    width = " to ".join(map(str, sorted({min(widths), max(widths)})))
    print(table([
        *rows, *((name, f"{value:g}") for name, value in settings.items()),
        ("features", f"{width}: {described(model, pool)}{where}"),
        ("training images", f"{len(split.train):,} of {dataset}, {len(classes)} classes"),
        ("test images", f"{len(split.test):,}"),
    ]))  # fmt: skip


def layers_of(model, text):
    """The layers that --layer names, as `features_by_layer` takes them."""
    if text is None:
        return [None]
    if text == "all":
        return [*range(model.depth + 1), None]
    return [checked_layer(model, layer_number(text, "a number, or all"))]


def in_columns(rows):
    """Rows of text as lines: the first column flush left, the others flush right."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = []
    for first, *others in rows:
        right = [f"{cell:>{width}}" for cell, width in zip(others, widths[1:])]
        lines.append("   ".join([f"  {first:<{widths[0]}}", *right]))
    return "\n".join(lines)
