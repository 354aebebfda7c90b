"""The folder that a run leaves behind. Every file in it is whole or absent, whenever the process dies.

    config.json         all that is needed to repeat the run
    preprocessing.json  what is done to an image before the model sees it, and the names of the classes
    metrics.jsonl       a line an evaluation
    checkpoints/        last.safetensors: weights, moments and step after the last finished epoch
    model.safetensors   the final weights, under timm's names
    summary.json        what came out
    curves.png          loss and accuracy by epoch
"""

import json
import os
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from tinyvit.backend import to_numpy
from tinyvit.training.config import from_json, to_json

METADATA = {"format": "pt"}  # weights are laid out as PyTorch has them; the one key that its loaders ask for


class RunFolder:
    """Names and contents of a run's files."""

    def __init__(self, path):
        self.path = Path(path)
        self.config = self.path / "config.json"
        self.preprocessing = self.path / "preprocessing.json"
        self.metrics = self.path / "metrics.jsonl"
        self.checkpoint = self.path / "checkpoints" / "last.safetensors"
        self.model = self.path / "model.safetensors"
        self.summary = self.path / "summary.json"
        self.curves = self.path / "curves.png"

    @contextmanager
    def started(self, config):
        """Hold the folder's lock for a new run with `config`; raises ValueError if it holds a run already."""
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"{self.path} is a file; choose a folder with --out")
        self.path.mkdir(parents=True, exist_ok=True)
        with locked(self.path / ".lock"):
            ours = (self.config, self.metrics, self.checkpoint, self.model, self.summary, self.curves)
            taken = [file.name for file in ours if file.exists()]
            if taken:
                raise ValueError(
                    f"{self.path} already holds a run ({', '.join(taken)}); choose another folder with --out"
                )
            self.checkpoint.parent.mkdir(exist_ok=True)
            write(self.config, to_json(config).encode())
            write(self.metrics, b"")
            yield self

    def add_metrics(self, row):
        """Append a line to metrics.jsonl."""
        with self.metrics.open("a") as file:
            file.write(json.dumps(row, allow_nan=False) + "\n")
            file.flush()
            os.fsync(file.fileno())

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


def write(path, content):
    """Put a file in place in one go: to a temporary name, to the disk, then renamed."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:  # a full disk, say: what was written so far only takes up more of it
        temporary.unlink(missing_ok=True)
        raise
    if os.name == "posix":  # the new name, too, has to reach the disk
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def save_tensors(path, tensors):
    """Arrays by name as a safetensors file; equal arrays give equal bytes."""
    from safetensors.numpy import save

    # safetensors corrupts arrays that are not C-contiguous; np.ascontiguousarray would make vectors of scalars.
    write(path, save({name: np.asarray(to_numpy(a), order="C") for name, a in tensors.items()}, METADATA))


def load_tensors(path):
    """Arrays by name from a safetensors file; ValueError if it is missing or damaged."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    if not path.is_file():
        raise ValueError(f"{path} is missing; the run was stopped before it was written")
    try:
        return load_file(path)
    except (SafetensorError, AttributeError, KeyError, TypeError) as error:  # the latter: a dtype NumPy doesn't have
        raise ValueError(f"{path} is damaged, of an unknown dtype, or not a safetensors file: {error}") from error


@contextmanager
def locked(path):
    """Hold a lock that the system takes back when the process is gone; ValueError if another process has it."""
    with path.open("a") as file:
        try:
            if os.name == "nt":
                import msvcrt

                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            else:
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ValueError(
                f"{path.parent} is in use by another training; choose another folder with --out"
            ) from error
        yield
