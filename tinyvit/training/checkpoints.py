"""Checkpoints, from which a training resumes as if it had never stopped.

    step-00001234-epoch-3.safetensors   weights, moments, EMA, sums of the current epoch
    step-00001234-epoch-3.json          its manifest: SHA256, position, the metrics so far
    best-00001234.safetensors, .json    the weights with the best evaluation

A whole checkpoint is never overwritten. The newest two are kept, so that there is one before if the newest is damaged.
"""

import re
from contextlib import suppress

from tinyvit.files import tidy, verified_manifest, write, write_with_manifest
from tinyvit.tensors import load_tensors, tensor_bytes

MAX_CHECKPOINTS = 2


class Checkpoints:
    """The checkpoints in a folder."""

    def __init__(self, path, write=write, check=lambda: None):
        """write, check   write(path, bytes), and check(), which raises an error if nothing may be written or removed"""
        self.path, self._write, self.check = path, write, check

    def save(self, step, epoch, tensors, about):
        """Save the state after `step` steps and `epoch` whole epochs; `about` goes into the manifest."""
        self.write(f"step-{step:08d}-epoch-{epoch}", tensors, about)
        self.check()
        for manifest in self.manifests()[MAX_CHECKPOINTS:]:
            remove(manifest)

    def save_best(self, step, tensors, about):
        """Save the best weights so far, in place of those before."""
        self.write(f"best-{step:08d}", tensors, about)
        self.check()
        for manifest in self.path.glob("best-*.json"):
            if manifest.stem != f"best-{step:08d}":
                remove(manifest)

    def best(self):
        """The best weights, by name; ValueError if there are none, or if they are damaged."""
        manifests = sorted(self.path.glob("best-*.json"))
        if not manifests:
            raise ValueError(f"{self.path} has no best weights: nothing was evaluated yet, or only the last were kept")
        verified_manifest(manifests[-1])
        return load_tensors(manifests[-1].with_suffix(".safetensors"))

    def write(self, name, tensors, about):
        self.check()
        manifest = self.path / f"{name}.json"
        if manifest.exists():
            with suppress(ValueError):
                verified_manifest(manifest)
                return  # the same step has the same state
        write_with_manifest(manifest, {f"{name}.safetensors": tensor_bytes(tensors)}, about, self._write)

    def tidy(self):
        """Remove unfinished files of a killed process."""
        tidy(self.path)
        for file in self.path.glob("*.safetensors"):
            if not file.with_suffix(".json").exists():
                file.unlink()

    def manifests(self):
        """The manifests of all complete checkpoints, newest first."""
        found = self.path.glob("step-*-epoch-*.json")
        return sorted(found, key=lambda file: [int(number) for number in re.findall(r"\d+", file.name)], reverse=True)

    def newest(self, report):
        """(about, tensors) of the newest checkpoint that is whole; None if there is none at all.

        `report` is told of each that is damaged; these are then put aside as NAME.damaged, so that they take no whole
        one's place. Raises ValueError if all are.
        """
        manifests = self.manifests()
        for place, manifest in enumerate(manifests):
            try:
                about = verified_manifest(manifest)
                tensors = load_tensors(manifest.with_suffix(".safetensors"))
            except ValueError as error:
                report(f"{error}; trying the checkpoint before")
                continue
            for damaged in manifests[:place]:
                for file in (damaged, damaged.with_suffix(".safetensors")):
                    with suppress(FileNotFoundError):
                        file.rename(f"{file}.damaged")
            return about, tensors
        if manifests:
            raise ValueError(
                f"no checkpoint in {self.path} is whole; start again with another --out, from new weights, or from the "
                f"run's last (--init.run {self.path.parent}) or best (--init.best, too)"
            )
        return None


def remove(manifest):
    """Remove a checkpoint: the manifest first, so that none names a missing file."""
    with suppress(FileNotFoundError):
        manifest.unlink()
        manifest.with_suffix(".safetensors").unlink()
