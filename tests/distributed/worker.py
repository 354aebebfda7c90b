"""Trains small models of many kinds and saves what came out: run by the tests alone, and as several ranks.

    python tests/distributed/worker.py OUT.npz FOLDER CASE…
"""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import contrastive_task  # noqa: F401
import tiny_task  # noqa: F401

from tinyvit.tensors import load_tensors
from tinyvit.training import PRESETS, train
from tinyvit.training.config import switched
from tinyvit.training.display import Display


class Losses(Display):
    """Shows nothing, and keeps each step's loss."""

    def __init__(self):
        self.losses = []

    def step(self, epoch, images, result):
        self.losses.append(float(result.loss))

    def print(self, text):
        pass


def base(**changes):
    """A small ViT on the digits in float64, with everything random that there is, and 64 steps on 85 images."""
    preset = PRESETS["digits"]
    model = replace(preset.model, embed_dim=16, depth=2, num_heads=2, drop_rate=0.1, drop_path_rate=0.1)
    config = replace(preset, model=model, batch_size=85, epochs=4, device="cpu", threads=1, precision="float64")
    config = replace(config, optim=replace(config.optim, clip_norm=0.5))
    optim = {name[6:]: changes.pop(name) for name in list(changes) if name.startswith("optim_")}
    return replace(config, optim=replace(config.optim, **optim), **changes)


def mixed():
    config = base(optim_accumulate=3, optim_ema=0.9, optim_clip_each=0.3)
    return replace(config, augment=replace(config.augment, crop=1, mixup=0.2, cutmix=0.5, erase=0.2))


def batch_normed():
    config = switched(base(), architecture="resnet")
    return replace(config, model=replace(config.model, depths=(1, 1), width=8))


def of_task(task, **options):
    config = base()
    config = switched(replace(config, model=replace(config.model, dynamic_img_size=True)), task=task)
    return replace(config, objective=replace(config.objective, **options))


def clip():
    config, small = base(batch_size=70, epochs=5), {"embed_dim": 16, "depth": 1, "text_dim": 16, "text_depth": 1}
    preset = PRESETS["clip-digits"]
    model = replace(preset.model, **small, num_heads=2, text_heads=2, projection_dim=8)
    return replace(preset, model=model, images=900, **{name: getattr(config, name) for name in (
        "batch_size", "epochs", "device", "threads", "precision")})  # fmt: skip


def diffusion():
    preset = PRESETS["dit-digits"]
    model = replace(preset.model, embed_dim=16, depth=1, num_heads=2)
    return replace(preset, model=model, batch_size=85, epochs=4, device="cpu", threads=1, precision="float64")


CASES = {
    "plain": lambda folder: base(optim_ema=0.9, images=990, batch_size=270, epochs=13),  # of 247 or 248
    "float32": lambda folder: base(precision="float32"),
    "mixed": lambda folder: mixed(),
    "muon": lambda folder: base(optim_name="muon", optim_lr=0.02),
    "batch-normed": lambda folder: batch_normed(),
    "teacher": lambda folder: of_task("distillation", teacher=str(folder / "teacher")),
    "mae": lambda folder: of_task("mae", decoder_dim=16, decoder_depth=1, decoder_heads=2),
    "masked-patches": lambda folder: of_task("masked-patches", target="colour"),
    "dino": lambda folder: of_task("dino", prototypes=32, hidden=16, bottleneck=8, frozen_last=0.2),
    "brightness": lambda folder: of_task("brightness"),
    "mirrored": lambda folder: of_task("mirrored"),
    "clip": lambda folder: clip(),
    "diffusion": lambda folder: diffusion(),
}


def main(out, folder, *cases):
    from tinyvit.training.distributed import launched

    found = {}
    with launched() as ranks:
        for case in cases or CASES:
            display = Losses()
            run = folder / f"{out.stem}-{case}"
            summary = train(CASES[case](folder), run, display)
            if ranks.leads:
                assert summary["ranks"] == ranks.size
                found[f"{case} losses"] = np.array(display.losses)
                found |= {f"{case} {name}": np.array(summary[name]) for name in summary if name.startswith("test_")}
                weights = load_tensors(run / "model.safetensors")
                found |= {f"{case} weights {name}": weight for name, weight in weights.items()}
        if ranks.leads:
            np.savez(out, **found)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]), *sys.argv[3:])
