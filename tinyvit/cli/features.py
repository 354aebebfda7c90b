"""tinyvit features, tinyvit probe-linear and tinyvit knn: the features of a trained model, and how well they tell the
classes of a data set apart."""

import re
from dataclasses import dataclass
from typing import Literal

from tinyvit.bench.table import columns
from tinyvit.cli.model_options import FileOptions, ModelOptions, computing, readable
from tinyvit.cli.parsing import check_least
from tinyvit.text import printable
from tinyvit.training.display import percent, table
from tinyvit.training.feature_classifiers import check_strength, check_votes, held_out, linear_probe, nearest_neighbours
from tinyvit.training.features import check_new_files, checked_pool, features_by_layer, features_of_files, save_features
from tinyvit.training.trained import load_prepared_data


@dataclass(frozen=True, kw_only=True)
class Features(FileOptions):
    """Features of images of your own, as a .npy file with a row for each image. IMAGE is a file that Pillow reads, or a
    folder, of which all images are taken. A file that can't be read is named on stderr and gets no row; the exit status
    is then 2."""

    out: str
    """The .npy file to write: float32 (n, D), as numpy.load reads it."""
    names: str | None = None
    """The text file to write the paths of the images to, a line for each row, with line breaks as \\n; by default
    as --out, ending with .txt."""
    layer: int | None = None
    """0 for what the first layer reads, i for what layer i gives; -1 is the last layer. By default what the head
    reads, after the final norm."""
    pool: Literal["token", "mean"] | None = None
    """The first token, such as a ViT's class token, or the mean over the patches; by default as the model does it."""

    def __call__(self):
        out, names = check_new_files(self.out, self.names)
        trained, unreadable = self.load(), []
        model = trained.model
        layer = self.layer if self.layer is None else model.layer_number(self.layer)
        pool = checked_pool(model, self.pool)
        with computing(trained, self) as ranks:
            files = features_of_files(model, trained.preprocessing, self.images, layer=layer, pool=pool,
                                      threads=self.threads)  # fmt: skip
            rows = (file._replace(path=re.sub("[\r\n]", lambda end: printable(end[0]), str(file.path)))
                    for file in readable(files, unreadable))  # fmt: skip
            count, width = save_features(rows, out, names) if ranks.leads else (len(list(rows)), None)
        written = {"out": str(out), "names": str(names)} if count else {"out": None, "names": None}
        shown = [("images", f"{count:,}" + f", and {len(unreadable):,} that can't be read" * bool(unreadable))]
        if count:
            what = f"{width}: {vector_name(model, pool)} {layer_name(model, layer)}"
            shown += [("features", what), ("written to", out), ("names", names)]
        self.show({"images": count, "unreadable": len(unreadable), "features": width, "layer": layer, "pool": pool,
                   **written}, table(shown))  # fmt: skip
        return 2 if unreadable else 0


def vector_name(model, pool):
    """The vector of an image in words; `pool` as `checked_pool` returns it."""
    if pool == "token":
        return model.first_token
    return "mean over all places" if model.grid is None else "mean over the patches"


def layer_name(model, layer):
    """The layer of the features in words; `layer` as `layer_number` of the model returns it."""
    if layer is None:
        return "as the head reads it"
    return f"after layer {layer} of {model.depth}" if layer else "before the first layer"


# -- probe-linear and knn ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Probing(ModelOptions):
    """The options of both, and what they have in common. A subclass has

    check(split)            which raises ValueError for a Split that can't be classified, before minutes are spent
    classify(train, test)   the numbers, for JSON, and further columns, from (features, labels) to train and to test on
    """

    data: Literal["digits", "moving-digits", "coloured-digits", "cifar10", "cifar100", "folder"] | None = None
    """Which images and classes; by default the data set, and its classes, that the run was trained on."""
    data_dir: str | None = None
    """Folder or archive with the data; by default the one that the run was trained with."""
    classes: tuple[str, ...] = ()
    """Only these classes of the data, by name."""
    images: int | None = None
    """Learn from this many training images, equally many of each class, drawn by the seed; by default from all."""
    layer: int | Literal["all"] | None = None
    """0 for what the first layer reads, i for what layer i gives; -1 is the last layer, and `all` are all layers, one
    after the other. By default what the head reads, after the final norm."""
    pool: Literal["token", "mean"] | None = None
    """The first token, such as a ViT's class token, or the mean over the patches; by default as the model does it."""
    seed: int = 0
    """Seed of what is drawn from the training images."""

    def settings(self):
        """The settings of all layers."""
        return {}

    def __call__(self):
        check_least(self, seed=0)
        trained = self.load()
        model, settings = trained.model, self.settings()
        layers = [*range(model.depth + 1), None]
        if self.layer != "all":
            layers = [self.layer if self.layer is None else model.layer_number(self.layer)]
        pool = checked_pool(model, self.pool)
        split = load_prepared_data(trained, self.data, self.data_dir, self.classes, self.images, self.seed)
        self.check(split)
        with computing(trained, self):
            train, test = (features_by_layer(model, part, layers, pool=pool, threads=self.threads) for part in split)
        rows, cells = [], []
        for layer, x, y in zip(layers, train, test):
            row, more = self.classify((x, split.train.labels), (y, split.test.labels))
            rows.append({"layer": layer, **row, "features": x.shape[1]})
            cells.append({"layer": layer_name(model, layer), "features": str(x.shape[1]),
                          "test accuracy": percent(row["test_accuracy"]), **more})  # fmt: skip
        dataset, classes = self.data or trained.config.dataset, split.train.classes
        numbers = {"layers": rows} if len(rows) > 1 else rows[0]
        about = {"pool": pool, "dataset": dataset, "classes": classes, "train_images": len(split.train),
                 "test_images": len(split.test)}  # fmt: skip
        facts = [
            *((name, f"{value:g}") for name, value in settings.items()), ("pool", vector_name(model, pool)),
            ("training images", f"{len(split.train):,} of {dataset}, {len(classes)} classes"),
            ("test images", f"{len(split.test):,}"),
        ]  # fmt: skip
        lines = columns(cells[0], [[*row.values()] for row in cells])
        self.show(numbers | settings | about, "\n".join([*lines, "", table(facts)]))


@dataclass(frozen=True)
class ProbeLinear(Probing):
    """How well logistic regression tells classes apart by a trained model's features, which stay as they are: the
    accuracy on the test images."""

    C: float | None = None
    """Inverse strength of the L2 regularisation; by default the best of several on a fifth of the training
    images."""

    def check(self, split):
        if self.C is None:
            held_out(split.train.labels, self.seed)
        else:
            check_strength(self.C)

    def classify(self, train, test):
        probe = linear_probe(train, test, C=self.C, seed=self.seed)
        tried = [{"C": C, "accuracy": accuracy} for C, accuracy in probe.tried]
        held = {"held out for C": percent(dict(probe.tried)[probe.C])} if tried else {}
        return {"test_accuracy": probe.accuracy, "C": probe.C, "tried": tried}, {"C": f"{probe.C:g}", **held}


@dataclass(frozen=True)
class Knn(Probing):
    """How well the nearest training images, by the cosine of a trained model's features, tell the classes of the test
    images: each of k neighbours votes with the weight exp(cosine/temperature), as in Wu et al. 2018."""

    k: int = 20
    """Neighbours that vote."""
    temperature: float = 0.07
    """The lower, the more the nearest of them count."""

    def settings(self):
        return {"k": self.k, "temperature": self.temperature}

    def check(self, split):
        check_votes(len(split.train), **self.settings())

    def classify(self, train, test):
        return {"test_accuracy": nearest_neighbours(train, test, **self.settings()).accuracy}, {}
