"""tinyvit features"""

import json
from dataclasses import dataclass
from typing import Literal

from tinyvit.cli.model_options import FileOptions, Readable, computing_together
from tinyvit.cli.parsing import parse
from tinyvit.training.display import table
from tinyvit.training.features import check_new_files, checked_layer, checked_pool, features_of_files, save_features


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
        written = [("written to", "nowhere, as there is nothing to write")]
        if count:
            what = f"{width}: {described(model, pool)} {described_layer(model, layer)}"
            written = [("features", what), ("written to", str(out)), ("names", str(names))]
        print(
            table([("images", f"{count:,}" + f", and {unreadable:,} that can't be read" * (unreadable > 0)), *written])
        )
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
