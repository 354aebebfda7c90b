"""What a ViT learns from hidden patches: accuracy with 1,000 labels of CIFAR-10 after learning from images alone.

    python notebooks/results/masking.py --data-dir FOLDER

Each model first learns from training images without labels, then is fine-tuned on 1,000 of them with labels; the same
ViT from scratch learns from the labels alone. Goes on where it was stopped: each finished training is added to
`masking.json` at once, and none that is there is run again. Judged are the test images after the last step.
"""

import argparse
import contextlib
import io
import json
import platform
from dataclasses import replace
from pathlib import Path

import numpy as np

from tinyvit import files
from tinyvit.bench.machine import processor
from tinyvit.training import train
from tinyvit.training.config import OptimConfig
from tinyvit.training.feature_classifiers import nearest_neighbours
from tinyvit.training.features import features
from tinyvit.training.finetune import finetune_config
from tinyvit.training.presets import preset
from tinyvit.training.tasks.masked_patches import MaskedPatchesOptions
from tinyvit.training.trained import load_data, load_trained

FILE = Path(__file__).with_suffix(".json")
LABELS, EPOCHS, BATCH = 1000, 40, 50
FEW, FEW_EPOCHS = 10_000, 5  # of the short trainings, which are compared with each other alone

MAE = preset("cifar10-mae")
FEWER = replace(MAE, images=FEW, epochs=FEW_EPOCHS, evaluate_every=FEW_EPOCHS)
FROM_SCRATCH = "from scratch"
# Two recipes were tried for fine-tuning (seed 0, MAE): this one, and that of cifar10-cpu, Muon: 55.6 and 53.7 %.
TUNING = OptimConfig(lr=1e-3, layer_decay=0.75, weight_decay=0.05, label_smoothing=0.1)


def hiding(share, **changes):
    return replace(FEWER, objective=replace(MAE.objective, share=share, **changes))


PRETRAINED = {
    "MAE": MAE,
    "masked patches": replace(MAE, task="masked-patches", objective=MaskedPatchesOptions(), epochs=12),
    "MAE, 15 % hidden": hiding(0.15),
    "MAE, 50 % hidden": hiding(0.5),
    "MAE, 75 % hidden": hiding(0.75),
    "MAE, 90 % hidden": hiding(0.9),
    "MAE, 75 % hidden, plain pixels": hiding(0.75, normalise=False),
    # As long as the one with 15 % hidden.
    "MAE, 75 % hidden, 11 epochs": replace(hiding(0.75), epochs=11, evaluate_every=11),
    "MAE, 90 % hidden, 15 epochs": replace(hiding(0.9), epochs=15, evaluate_every=15),
}


def from_scratch(seed, data_dir, threads):
    """The configuration of the ViT that learns from labels alone: the preset `cifar10-cpu`, its images of one size
    and not mixed."""
    known = preset("cifar10-cpu")
    optim = replace(known.optim, small_sizes=(), small_until=())
    return replace(known, images=LABELS, epochs=EPOCHS, evaluate_every=EPOCHS, batch_size=BATCH, optim=optim,
                   augment=MAE.augment, seed=seed, data_dir=data_dir, threads=threads, device="cpu")  # fmt: skip


def tuned(run, seed, data_dir, threads):
    """The configuration that fine-tunes a run, as `tinyvit finetune RUN --data cifar10 --images 1000` with options."""
    return finetune_config(
        str(run), "cifar10", images=LABELS, epochs=EPOCHS, evaluate_every=EPOCHS, batch_size=BATCH, optim=TUNING,
        augment=MAE.augment, seed=seed, data_dir=data_dir, threads=threads, device="cpu",
    )  # fmt: skip


def trained(config, run):
    """The summary of a training, or of the one that `run` holds already."""
    if not (run / "summary.json").exists():
        with contextlib.redirect_stdout(io.StringIO()):
            train(config, run)
    summary = json.loads((run / "summary.json").read_text())
    if "interrupted" in summary:
        raise SystemExit(f"{run} was stopped; finish it with tinyvit train --resume {run}")
    return summary


def neighbours(run, data_dir, threads):
    """The share of test images classified correctly by the nearest neighbours among 10,000 training images."""
    trained_run = load_trained(run, "cpu")
    split = load_data(trained_run, data_dir)
    labelled = split.train.subset(np.random.default_rng(0).permutation(len(split.train))[:FEW])
    parts = [(features(trained_run.model, part, threads=threads), part.labels) for part in (labelled, split.test)]
    return round(nearest_neighbours(*parts).accuracy, 6)


def stored():
    """The finished trainings, each a dict."""
    return json.loads(FILE.read_text())["runs"] if FILE.exists() else []


def add(run):
    """Append a finished training to the file, a line each."""
    made = {"processor": processor(), "python": platform.python_version(), "numpy": np.__version__}
    lines = ",\n".join(json.dumps(one) for one in [*stored(), run])
    files.write(FILE, f'{{"made with": {json.dumps(made)},\n"runs": [\n{lines}\n]}}\n'.encode())


def done(**known):
    return any(all(run.get(name) == value for name, value in known.items()) for run in stored())


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data-dir", help="folder with CIFAR-10")
    parser.add_argument("--models", choices=[FROM_SCRATCH, *PRETRAINED], nargs="+", metavar="MODEL",
                        default=[FROM_SCRATCH, *PRETRAINED])  # fmt: skip
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of the labels and the fine-tuning")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--runs", type=Path, default=Path("runs/masking"), help="folder for the runs")
    options = parser.parse_args(arguments)
    made = options.data_dir, options.threads
    for name in options.models:
        folder = options.runs / name.replace(", ", "-").replace(" ", "-").replace("%-", "")
        missing = [seed for seed in options.seeds if not done(model=name, labels=LABELS, seed=seed)]
        known = done(model=name, labels=0)
        if name != FROM_SCRATCH and (missing or not known):
            summary = trained(replace(PRETRAINED[name], data_dir=made[0], threads=made[1], device="cpu"), folder)
            if not known:
                add({"model": name, "labels": 0, "seed": 0, "steps": summary["steps"],
                     "seconds": round(summary["seconds"], 1), "test_loss": round(summary["test_loss"], 6),
                     "knn": neighbours(folder, *made)})  # fmt: skip
        for seed in missing:
            config = from_scratch(seed, *made) if name == FROM_SCRATCH else tuned(folder, seed, *made)
            summary = trained(config, Path(f"{folder}-{LABELS}-labels-{seed}"))
            accuracy = round(summary["test_accuracy"], 6)
            add({"model": name, "labels": LABELS, "seed": seed, "steps": summary["steps"],
                 "seconds": round(summary["seconds"], 1), "accuracy": accuracy})  # fmt: skip
            print(f"{name:<32} seed {seed}  {100 * accuracy:.2f} %", flush=True)


if __name__ == "__main__":
    main()
