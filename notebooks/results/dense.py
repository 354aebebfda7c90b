"""A label for each pixel: heads, pre-training and numbers of masks, on `segment-digits`.

    python notebooks/results/dense.py --runs FOLDER

A ViT smaller than the preset's, with 64 numbers a token and 3 blocks. All trainings have equally many steps, so that
those on few masks see them more often. MAE learns from all training images without their masks. Goes on where it was
stopped: each finished training is added to `dense.json` at once, and none that is there is run again.
"""

import argparse
import contextlib
import io
import json
import platform
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from tinyvit import files
from tinyvit.bench.machine import processor
from tinyvit.models import SwinConfig
from tinyvit.training import train
from tinyvit.training.config import InitConfig
from tinyvit.training.presets import preset

FILE = Path(__file__).with_suffix(".json")
STEPS, BATCH, ALL = 1080, 64, 11_496
PRESET = preset("segment-digits")
VIT = replace(PRESET.model.backbone, embed_dim=64, depth=3)
SWIN = SwinConfig(patch_size=2, embed_dim=32, depths=(1, 2), num_heads=(2, 4), mlp_ratio=2.0, window_size=4)
COMMON = dict(batch_size=BATCH, threads=1, device="cpu")
MAE = replace(
    preset("cifar10-mae"), dataset="segment-digits", model=VIT, epochs=5, evaluate_every=5, augment=PRESET.augment,
    mean=(), std=(), **COMMON,
)  # fmt: skip


def configured(name, head, masks, seed, mae):
    """The configuration of a training; its steps are as near to STEPS as whole epochs allow."""
    epochs = round(STEPS / max(1, masks // BATCH))
    model = replace(PRESET.model, backbone=VIT, head=head, decoder_dim=32)
    if name == "Swin":
        model = replace(model, architecture="swin", backbone=SWIN)
    return replace(
        PRESET, model=model, seed=seed, epochs=epochs, evaluate_every=epochs, images=None if masks == ALL else masks,
        init=InitConfig(run=str(mae)) if name == "MAE" else InitConfig(), **COMMON,
    )  # fmt: skip


def wanted():
    """(what, head, masks, seed) of all trainings: a seed after the other, so that one that is stopped has each once."""
    for seed in range(3):
        yield from (("from scratch", head, ALL, seed) for head in ("linear", "pixel", "mask", "pyramid"))
        yield from ((name, "pixel", masks, seed) for masks in (100, 1000, 10_000) for name in ("from scratch", "MAE"))
        yield "Swin", "pixel", ALL, seed


def trained(config, run):
    """The summary of a training, or of the one that `run` holds already."""
    if not (run / "summary.json").exists():
        with contextlib.redirect_stdout(io.StringIO()):
            train(config, run)
    summary = json.loads((run / "summary.json").read_text())
    if "interrupted" in summary:
        raise SystemExit(f"{run} was stopped; finish it with tinyvit train --resume {run}")
    return summary


def stored():
    """The finished trainings, each a dict."""
    return json.loads(FILE.read_text())["runs"] if FILE.exists() else []


def add(run):
    """Append a finished training to the file, a line each."""
    made = {"processor": processor(), "python": platform.python_version(), "numpy": np.__version__, "threads": 1}
    lines = ",\n".join(json.dumps(one) for one in [*stored(), run])
    files.write(FILE, f'{{"made with": {json.dumps(made)},\n"runs": [\n{lines}\n]}}\n'.encode())


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=Path, default=Path("runs/dense"), help="folder for the runs")
    options = parser.parse_args(arguments)
    names = "name", "head", "masks", "seed"
    for key in wanted():
        if any(tuple(run[name] for name in names) == key for run in stored()):
            continue
        name, head, masks, seed = key
        if name == "MAE":
            trained(MAE, options.runs / "mae")
        start = time.process_time()
        summary = trained(configured(*key, options.runs / "mae"), options.runs / f"{name}-{head}-{masks}-{seed}")
        figures = {name: round(summary[name], 6) for name in ("mean_iou", "pixel_accuracy", "test_loss")}
        seconds = round(time.process_time() - start, 1)
        counts = {name: summary[name] for name in ("parameters", "steps")}
        add(dict(zip(names, key)) | figures | counts | {"cpu_seconds": seconds})
        print(f"{name:<14}{head:<8} {masks:>6,} masks  seed {seed}  {figures['mean_iou']:.3f}  {seconds:.0f} s",
              flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
