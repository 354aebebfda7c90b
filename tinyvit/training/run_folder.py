"""The folder that a run leaves behind. Every file in it is whole or absent, whenever the process dies.

    config.json          the configuration, which repeats the run
    preprocessing.json   how images become the model's input: classes, size, mean and standard deviation
    metrics.jsonl        one line per evaluation
    checkpoints/         the state to resume from; see `training.checkpoints`
    model.safetensors    the final weights, under timm's names; the moving average if that is what was evaluated
    model.json           the SHA256 of the weights
    summary.json         the results
    curves.png           the loss and the task's figures by epoch
    tokenizer.json       of an imported CLIP: how texts become tokens, for the library tokenizers
    imported.json        of weights that were imported, or saved by `tinyvit.save`: where they came from; the run then
                         has no metrics, checkpoints, summary and curves

A folder with seeds.json holds such runs, one for each seed; see `training.seeds`.
"""

import json
import os
from contextlib import contextmanager, suppress
from importlib import metadata
from itertools import chain, count
from pathlib import Path

from tinyvit.files import (
    check_folder,
    digest,
    expand_path,
    hold_lock,
    identity,
    read_text,
    tidy,
    verified_manifest,
    write,
    write_with_manifest,
)  # fmt: skip
from tinyvit.tensors import load_tensors, tensor_bytes
from tinyvit.text import did_you_mean
from tinyvit.training.checkpoints import Checkpoints
from tinyvit.training.config import from_json, to_json

FILES = {  # by their attributes of a `RunFolder`
    "config": "config.json", "preprocessing": "preprocessing.json", "metrics": "metrics.jsonl",
    "model": "model.safetensors", "model_manifest": "model.json", "summary": "summary.json", "curves": "curves.png",
    "tensorboard": "tensorboard", "imported": "imported.json", "tokenizer": "tokenizer.json", "seeds": "seeds.json",
}  # fmt: skip
FIRST_NOTEBOOK = "00_tour.ipynb"
INSTALLED = ("share", "tinyvit", "notebooks", FIRST_NOTEBOOK)  # in pip's folder for data, as in setup.cfg


class RunFolder:
    """Names and contents of a run's files.

    A training holds the folder's lock, and writes only as long as that lock is the one at the folder's path: a folder
    that was removed, moved or replaced in the meantime isn't this run's.
    """

    lock = None

    def __init__(self, path):
        self.path = expand_path(path)
        for name, file in FILES.items():
            setattr(self, name, self.path / file)
        self.checkpoints = Checkpoints(self.path / "checkpoints", self.write, self.check_lock)

    @contextmanager
    def start(self, config=None):
        """Make the folder and hold its lock, for a new run with `config` or, without one, for several; raises
        ValueError if it holds a run already, or several."""
        check_folder(self.path)
        self.path.mkdir(parents=True, exist_ok=True)
        with self.hold_lock():
            ours = [self.path / name for name in ("checkpoints", *FILES.values())]
            taken = [file.name for file in ours if file.is_file() or (file.is_dir() and any(file.iterdir()))]
            if taken:
                raise ValueError(
                    f"{self.path} already holds a run ({', '.join(taken)}); choose another folder with --out, "
                    f"or go on with it: tinyvit train --resume {self.path}"
                )
            if config is not None:
                self.checkpoints.path.mkdir(exist_ok=True)
                self.write(self.config, to_json(config).encode())
            yield self

    @contextmanager
    def resume(self):
        """Hold the folder's lock to go on with its run; ValueError for one that was imported or saved, and has none."""
        self.read_config()
        if self.imported.is_file():
            raise ValueError(f"{self.path} has no training to go on with; fine-tune it: tinyvit finetune {self.path}")
        with self.hold_lock():
            self.checkpoints.path.mkdir(exist_ok=True)
            self.checkpoints.tidy()
            yield self

    @contextmanager
    def hold_lock(self):
        """Hold the folder's lock, which the system releases when the process ends; ValueError if another training has
        it."""
        with hold_lock(self.path / ".lock", self.refuse) as self.lock:
            tidy(self.path)
            try:
                yield
            except (OSError, ValueError):
                self.check_lock()  # that the folder went away says more than what failed there
                raise
            finally:
                self.lock = None

    def refuse(self):
        raise ValueError(
            f"{self.path} is in use by another training; wait for its end, or choose another folder with --out"
        )

    def check_lock(self):
        """Raise ValueError if a training holds the lock of another folder than the one that is at its path now."""
        if self.lock is not None and self.lock != identity(self.path / ".lock"):
            raise ValueError(
                f"{self.path} was removed, moved or replaced while this training was writing to it; it stops, and "
                "leaves what is there now unchanged. To continue a moved run: tinyvit train --resume FOLDER"
            )

    def write(self, path, content):
        """Put bytes into one of the run's files in one go."""
        self.check_lock()
        write(path, content, f"make room and go on with tinyvit train --resume {self.path}")

    def write_metrics(self, history):
        """Put the rows of all evaluations so far into metrics.jsonl, a line each."""
        self.write(self.metrics, "".join(json.dumps(row, allow_nan=False) + "\n" for row in history).encode())

    def read_metrics(self, names):
        """The rows of metrics.jsonl: their epoch, seconds and figures of these names; ValueError if there are none."""
        try:
            rows = [json.loads(line) for line in read_text(self.metrics).splitlines()]
            if not rows:
                raise ValueError("there was no evaluation yet")
            return [
                {"epoch": int(row["epoch"]), "seconds": float(row["seconds"])}
                | {name: None if row[name] is None else float(row[name]) for name in names} for row in rows
            ]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"{self.path} has no figures to compare in {self.metrics.name}: {error}") from error

    def save_model(self, tensors):
        """Save the final weights, and a manifest with their SHA256."""
        self.check_lock()
        write_with_manifest(self.model_manifest, {self.model.name: tensor_bytes(tensors)}, write=self.write)

    def load_model(self):
        """The final weights; ValueError if they are missing or changed."""
        if not self.model.exists():
            raise ValueError(f"{self.model} is missing; finish the run with tinyvit train --resume {self.path}")
        if self.model_manifest.exists():
            try:
                verified_manifest(self.model_manifest)
            except ValueError as error:
                raise ValueError(f"{error}; if it was replaced on purpose, remove {self.model_manifest}") from error
        return load_tensors(self.model)

    def write_json(self, path, value):
        self.write(path, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())

    def digest(self):
        """The SHA-256 of config.json."""
        return digest(self.config.read_bytes())

    def finished(self):
        """The summary of a run that has nothing left to do; None if it is unfinished, or a file is damaged or gone."""
        try:
            summary = json.loads(read_text(self.summary))
            read_text(self.preprocessing)
            self.load_model()
        except (OSError, ValueError, RecursionError):
            return None
        return summary if isinstance(summary, dict) and "interrupted" not in summary else None

    def read_config(self):
        """The configuration of a run; raises ValueError if the folder is not one."""
        if not self.path.is_dir():
            reason = "it is a file" if self.path.exists() else "it doesn't exist"
            runs = runs_in(self.path.parent)
            reason += f"; in {self.path.parent}/, {did_you_mean(self.path.name, runs)}" if runs else ""
            raise ValueError(f"{self.path} is not a run folder: {reason}")
        if self.seeds.is_file():
            raise ValueError(f"{self.path} holds a run for each of several seeds; name one of them: {self.path}/seed-…")
        if not self.config.is_file():
            raise ValueError(f"{self.path} is not a run folder: it has no config.json")
        return from_json(read_text(self.config), self.config)


def next_free(path):
    """Make the folder `path`, or path-2, path-3, …: the first that doesn't exist yet, even if two ask at once."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    for free in chain([path], (path.with_name(f"{path.name}-{number}") for number in count(2))):
        with suppress(FileExistsError):
            free.mkdir()
            return free


# -- models that come with tinyvit -------------------------------------------------------------------------------------


def locate_run(path):
    """`path`, or, if nothing is there, the folder of the model of this name that comes with tinyvit.

    Raises ValueError, with the nearest name or all, for a bare name that is neither.
    """
    place = expand_path(path)
    if os.path.lexists(place) or place.name != str(place) or not (stored := stored_models()):
        return place
    if place.name not in stored:
        raise ValueError(
            f"{place} is not a run folder: it doesn't exist, and no model of this name comes with tinyvit; "
            f"{did_you_mean(place.name, runs_in(place.parent) | stored)}"
        )
    return stored[place.name]


def stored_models():
    """The runs that come with tinyvit: their folders by name, such as "cifar10-cpu"."""
    folder = notebooks_folder()
    return {} if folder is None else runs_in(folder / "models")


def runs_in(folder):
    """The runs in a folder: their own folders by name."""
    return {config.parent.name: config.parent for config in sorted(folder.glob("*/config.json"))}


def notebooks_folder():
    """The folder of the notebooks: in a checkout beside the package, else where pip has put it; None if it isn't
    installed."""
    beside = Path(__file__).parents[2] / "notebooks"
    if (beside / FIRST_NOTEBOOK).is_file():
        return beside
    with suppress(metadata.PackageNotFoundError):
        for file in metadata.files("tinyvit") or ():
            if file.parts[-4:] == INSTALLED and file.locate().is_file():
                return file.locate().resolve().parent
