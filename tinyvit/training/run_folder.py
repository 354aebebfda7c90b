"""The folder that a run leaves behind. Every file in it is whole or absent, whenever the process dies.

    config.json          all that is needed to repeat the run
    preprocessing.json   all that is needed to show the model another image: classes, size, mean and standard deviation
    metrics.jsonl        a line an evaluation
    checkpoints/         what a training needs to go on; see `training.checkpoints`
    model.safetensors    the final weights, under timm's names; the moving average if that is what was evaluated
    model.json           the SHA256 of the weights
    summary.json         what came out
    curves.png           loss and accuracy by epoch
    imported.json        of weights that were trained elsewhere: where they came from; the run then has no metrics,
                         checkpoints, summary and curves
"""

import hashlib
import json
from contextlib import contextmanager
from pathlib import Path

from tinyvit.data.locking import try_lock
from tinyvit.data.paths import expanded
from tinyvit.training.checkpoints import Checkpoints
from tinyvit.training.config import from_json, to_json
from tinyvit.training.files import (
    load_tensors,
    read_manifest,
    tensor_bytes,
    write,
    write_manifest,
    write_with_manifest,
)  # fmt: skip

SUMMARY = {"epochs", "steps", "skipped_steps", "seconds", "parameters"}  # and accuracy and loss, by what was evaluated


class RunFolder:
    """Names and contents of a run's files."""

    def __init__(self, path):
        self.path = expanded(path)
        self.config = self.path / "config.json"
        self.preprocessing = self.path / "preprocessing.json"
        self.metrics = self.path / "metrics.jsonl"
        self.checkpoints = Checkpoints(self.path / "checkpoints")
        self.model = self.path / "model.safetensors"
        self.model_manifest = self.path / "model.json"
        self.summary = self.path / "summary.json"
        self.curves = self.path / "curves.png"
        self.tensorboard = self.path / "tensorboard"
        self.imported = self.path / "imported.json"

    @contextmanager
    def started(self, config):
        """Hold the folder's lock for a new run with `config`; raises ValueError if it holds a run already."""
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"{self.path} is a file; choose a folder with --out")
        self.path.mkdir(parents=True, exist_ok=True)
        with locked(self.path / ".lock"):
            ours = (
                self.config, self.preprocessing, self.metrics, self.checkpoints.path, self.model, self.model_manifest,
                self.summary, self.curves, self.tensorboard, self.imported,
            )  # fmt: skip
            taken = [file.name for file in ours if file.is_file() or (file.is_dir() and any(file.iterdir()))]
            if taken:
                raise ValueError(
                    f"{self.path} already holds a run ({', '.join(taken)}); choose another folder with --out, "
                    f"or go on with it: tinyvit train --resume {self.path}"
                )
            self.checkpoints.path.mkdir(exist_ok=True)
            write(self.config, to_json(config).encode())
            yield self

    @contextmanager
    def resumed(self):
        """Hold the folder's lock to go on with its run; ValueError for one that was imported, and has none."""
        self.read_config()
        if self.imported.is_file():
            raise ValueError(f"{self.path} was imported, not trained; go on with it by tinyvit finetune {self.path}")
        with locked(self.path / ".lock"):
            self.checkpoints.path.mkdir(exist_ok=True)
            self.checkpoints.tidy()
            for left_over in self.path.glob(".*.tmp"):
                left_over.unlink()
            yield self

    def write_metrics(self, history):
        """Put the rows of all evaluations so far into metrics.jsonl, a line each."""
        write(self.metrics, "".join(json.dumps(row, allow_nan=False) + "\n" for row in history).encode())

    def save_model(self, tensors):
        """Save the final weights and their SHA256."""
        write_with_manifest(self.model_manifest, {self.model.name: tensor_bytes(tensors)})

    def load_model(self):
        """The final weights; raises ValueError if they are missing or not what was saved."""
        if not self.model.exists():
            raise ValueError(f"{self.model} is missing; finish the run with tinyvit train --resume {self.path}")
        if self.model_manifest.exists():
            try:
                read_manifest(self.model_manifest)
            except ValueError as error:
                raise ValueError(f"{error}; if it was replaced on purpose, remove {self.model_manifest}") from error
        return load_tensors(self.model)

    def write_imported(self, config, preprocessing, origin):
        """Make a run of the weights that are in model.safetensors already: all of its other files.

        config   a `TrainConfig` with the model's shape
        origin   where the weights came from, for imported.json
        """
        with self.model.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        write_manifest(self.model_manifest, {self.model.name: {"bytes": self.model.stat().st_size, "sha256": sha256}})
        write(self.imported, (json.dumps(origin, indent=2, allow_nan=False) + "\n").encode())
        write(self.preprocessing, preprocessing.to_json().encode())
        write(self.config, to_json(config).encode())

    def write_summary(self, summary):
        write(self.summary, (json.dumps(summary, indent=2, allow_nan=False) + "\n").encode())

    def finished(self):
        """The summary of a run that has nothing left to do; None if it is unfinished, or a file is damaged or gone."""
        try:
            summary = json.loads(self.summary.read_text(encoding="utf-8"))
            whole = isinstance(summary, dict) and set(summary) >= SUMMARY and "interrupted" not in summary
            self.load_model()
        except (OSError, ValueError, RecursionError):
            return None
        return summary if whole else None

    def read_config(self):
        """The configuration of a run; raises ValueError if the folder is not one."""
        if not self.path.is_dir():
            reason = "it is a file" if self.path.exists() else "it doesn't exist"
            raise ValueError(f"{self.path} is not a run folder: {reason}")
        if not self.config.is_file():
            raise ValueError(f"{self.path} is not a run folder: it has no config.json")
        return from_json(self.config.read_text(errors="replace"), self.config)


def next_free(path):
    """Make the folder `path`, or path-2, path-3, …: the first that doesn't exist yet, even if two ask at once."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    number, free = 1, path
    while True:
        try:
            free.mkdir()
            return free
        except FileExistsError:
            number += 1
            free = path.with_name(f"{path.name}-{number}")


@contextmanager
def locked(path):
    """Hold a lock that the system takes back when the process is gone; ValueError if another process has it."""
    with path.open("a") as file:
        if not try_lock(file):
            raise ValueError(
                f"{path.parent} is in use by another training; wait for its end, or choose another folder with --out"
            )
        yield
