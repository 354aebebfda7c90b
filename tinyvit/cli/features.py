"""tinyvit features"""

import json
import sys
from dataclasses import dataclass
from typing import Literal

from tinyvit.cli.parsing import BadInput, parse, say_why_no_gpu, separate
from tinyvit.cli.predict import preprocessing_of

POOLED = {"token": "class token", "mean": "mean over the patches"}


@dataclass(frozen=True)
class FeaturesOptions:
    """Features of images of your own, as a .npy file with a row for each image. IMAGE is a file that Pillow reads, or a
    folder, of which all images are taken. What can't be read is named on stderr and has no row, the others are still
    done, and the exit status is 2."""

    out: str
    """The .npy file to write: float32 (n, D), as numpy.load reads it."""
    names: str | None = None
    """The text file to write the paths of the images to, a line for each row; by default as --out, ending with .txt."""
    layer: str | None = None
    """0 for what enters the first block, i for what block i gives; −1 is the last block. By default what the head
    reads: the last block's tokens after the final norm."""
    pool: Literal["token", "mean"] | None = None
    """The class token, or the mean over the patches; by default as the model's head has it."""
    json: bool = False
    """Print one JSON object instead of a table."""
    best: bool = False
    """Take the weights that did best on the way, and not the last ones."""
    device: str = "auto"
    """Where to compute: cpu, cuda for a GPU, cuda:1 for the second of several; auto takes a GPU if one works."""
    threads: int | None = None
    """CPU threads, of the computation and of reading files."""
    kernels: Literal["reference", "numpy", "fast"] | None = None
    """How operations are computed; by default TINYVIT_KERNELS, or the best that is installed."""
    data_dir: str | None = None
    """The run's data set; only needed for a run that has no preprocessing.json."""


def features(rest):
    """tinyvit features RUN IMAGE… --out FILE.npy"""
    arguments, rest = separate(rest, FeaturesOptions)
    options = parse(FeaturesOptions, rest, "tinyvit features RUN IMAGE… --out FILE.npy")
    if len(arguments) < 2 or "" in arguments:
        got = f"{' '.join(arguments)} and no image" if arguments else "nothing"
        raise BadInput(f"expected a run folder and images: tinyvit features RUN IMAGE… --out FILE.npy, got {got}")
    run_path, *paths = arguments

    from tinyvit.functional.levels import using
    from tinyvit.training.features import checked_layer, checked_pool, features_of_files
    from tinyvit.training.features_file import check_new_files, save_features
    from tinyvit.training.memory_needs import room_to_evaluate
    from tinyvit.training.predict import BATCH
    from tinyvit.training.trained import load_trained

    out, names = check_new_files(options.out, options.names)
    trained = load_trained(run_path, options.device, options.best)
    prepared = trained.preprocessing or preprocessing_of(trained, options.data_dir)
    model = trained.model
    layer = None if options.layer is None else checked_layer(model, layer_number(options.layer, "one number"))
    pool = checked_pool(model, options.pool)
    readable = Readable()
    with using(options.kernels), room_to_evaluate(model, BATCH):
        files = features_of_files(model, prepared, paths, layer=layer, pool=pool, threads=options.threads)
        count = save_features(readable.of(files), out, names)
    if options.json:
        written = {"out": str(out), "names": str(names)} if count else {"out": None, "names": None}
        found = {"images": count, "unreadable": readable.others, "features": model.config.embed_dim}
        print(json.dumps({**found, "layer": layer, "pool": pool, **written}))
    else:
        print_written(model, layer, pool, count, readable.others, out, names)
    if readable.others:
        return 2
    say_why_no_gpu(trained.why_not_gpu)
    return 0


def layer_number(text, expected):
    """The number that --layer was given; BadInput, with what is expected, for what is none."""
    number = text.replace("−", "-")
    if not number.removeprefix("-").isdecimal():
        raise BadInput(f"expected --layer as {expected}, got {text!r}")
    return int(number)


class Readable:
    """Those files that have features; the others are named on stderr, and counted."""

    others = 0

    def of(self, files):
        from tinyvit.training.features_file import fits_a_line

        for file in files:
            error = file.error
            if error is None and not fits_a_line(file.path):
                error = f"{str(file.path)!r} has a line break in its name, which the list of names can't hold"
            if error is None:
                yield file
            else:
                self.others += 1
                print("tinyvit: error:", " ".join(error.split()), file=sys.stderr, flush=True)


def print_written(model, layer, pool, count, unreadable, out, names):
    from tinyvit.training.display import table

    rows = [("images", f"{count:,}" + (f", and {unreadable:,} that can't be read" if unreadable else ""))]
    if count:
        rows += [
            ("features", f"{model.config.embed_dim}: {POOLED[pool]} {described_layer(model, layer)}"),
            ("written to", str(out)),
            ("names", str(names)),
        ]
    else:
        rows.append(("written to", "nowhere, as there is nothing to write"))
    print(table(rows))


def described_layer(model, layer):
    """Where features are from, in words; `layer` as `checked_layer` gives it."""
    if layer is None:
        return "after the final norm"
    return f"after block {layer} of {len(model.blocks)}" if layer else "before the first block"
