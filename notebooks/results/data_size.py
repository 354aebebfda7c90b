"""What a convolution's built-in knowledge is worth, by the number of training images: ViT, ResNet and hybrid.

    python notebooks/results/data_size.py                       # the digits: a quarter of an hour of a core
    python notebooks/results/data_size.py --data cifar10 --data-dir FOLDER --images 500 2500 --steps 300 --seeds 0

Goes on where it was stopped: each finished run is added to `data_size.json` at once, and none that is there is run
again. A run is a model, a number of images, a number of steps and a seed. All runs on a data set have equally many
steps, so that those on few images see them more often, and differ in nothing but what they are named after. They are
judged on the test images after the last step. The learning rate is that of the preset `digits`; it and the shifts were
compared with seeds 0 and 1 on a quarter of the training images that was set aside (see README.md).
"""

import argparse
import contextlib
import io
import json
import platform
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tinyvit import ViTConfig, files
from tinyvit.bench.machine import processor
from tinyvit.models import CoAtNetConfig, SwinConfig, build
from tinyvit.models.hybrid import HybridConfig
from tinyvit.models.registry import architecture_name
from tinyvit.models.resnet import ResNetConfig
from tinyvit.models.summary import summarize
from tinyvit.training import train
from tinyvit.training.config import AugmentConfig, OptimConfig, TrainConfig

FILE = Path(__file__).with_suffix(".json")

RESNET = ResNetConfig(img_size=8, in_chans=1, depths=(1, 1, 1), width=16)
VIT = ViTConfig(img_size=8, in_chans=1, patch_size=4, embed_dim=80, depth=3, num_heads=4, mlp_ratio=2.0,
                global_pool="avg", positions="sincos_2d")  # fmt: skip
HYBRID = HybridConfig(**vars(VIT) | dict(embed_dim=64, depth=2, backbone_width=12))


@dataclass(frozen=True)
class DataSet:
    """A data set, and what its trainings have in common."""

    images: tuple     # numbers of training images
    all: int          # training images that there are
    shape: dict       # fields of every model
    batch_size: int
    augment: AugmentConfig
    steps: int        # unless others are asked for
    evaluations: int  # of each run at least, unless it has fewer epochs


DATA = {
    "digits": DataSet((50, 200, 700, 1437), 1437, dict(img_size=8, in_chans=1), 50, AugmentConfig(crop=1), 700, 25),
    "cifar10": DataSet(
        (500, 2500, 10000, 50000), 50000, dict(img_size=32, in_chans=3), 100, AugmentConfig(crop=4, flip=True), 1000, 2,
    ),
}  # fmt: skip

ADAMW = OptimConfig(lr=3e-3, weight_decay=0.05, warmup=0.1, label_smoothing=0.1)
MUON = replace(ADAMW, name="muon", lr=0.01, adam_lr=3e-3)
UNREGULARISED = replace(ADAMW, weight_decay=0.0, label_smoothing=0.0)
MODELS = {  # the model, its optimizer, and whether images are shifted, and those of CIFAR mirrored
    "ViT": (VIT, ADAMW, True), "ResNet": (RESNET, ADAMW, True), "hybrid": (HYBRID, ADAMW, True),
    "ViT, 128 wide": (replace(VIT, embed_dim=128), ADAMW, True),
    "ViT, not regularised": (VIT, UNREGULARISED, False), "ResNet, not regularised": (RESNET, UNREGULARISED, False),
    "ViT, by Muon": (VIT, MUON, True), "ResNet, by Muon": (RESNET, MUON, True),
}  # fmt: skip
SWIN = SwinConfig(patch_size=2, embed_dim=32, depths=(2, 2, 1), num_heads=(1, 2, 4), mlp_ratio=2.0)
COATNET = CoAtNetConfig(stem_width=16, stages="CCT", depths=(1, 1, 2), widths=(24, 48, 64), strides=(1, 2, 1),
                        head_dim=16)  # fmt: skip
FAMILY = MODELS | {  # those of notebook 14 as well, for photographs: each architecture in two sizes
    "ResNet, 24 wide": (replace(RESNET, width=24), ADAMW, True),
    "hybrid, 96 wide": (replace(HYBRID, embed_dim=96, backbone_width=18), ADAMW, True),
    "Swin": (SWIN, ADAMW, True), "Swin, 48 wide": (replace(SWIN, embed_dim=48, num_heads=(2, 4, 8)), ADAMW, True),
    "CoAtNet": (COATNET, ADAMW, True),
    "CoAtNet, 48 wide": (replace(COATNET, stem_width=32, widths=(48, 64, 96)), ADAMW, True),
}  # fmt: skip


def configured(data, model, images, steps, seed, data_dir=None):
    """The configuration of a run; its steps are as near to those asked for as whole epochs allow."""
    config, optim, augmented = FAMILY[model]
    d = DATA[data]
    config = replace(config, **d.shape)
    per_epoch = max(1, images // d.batch_size)
    return TrainConfig(
        dataset=data, data_dir=data_dir, architecture=architecture_name(config), model=config, seed=seed,
        images=None if images == d.all else images, batch_size=d.batch_size, epochs=max(1, round(steps / per_epoch)),
        evaluate_every=max(1, steps // (d.evaluations * per_epoch)), threads=1, device="cpu",
        optim=optim, augment=d.augment if augmented else AugmentConfig(),
    )  # fmt: skip


def multiply_adds(config):
    """Of a forward of one image, as `tinyvit summary` counts them."""
    return sum(row.multiply_adds for row in summarize(build(config, device="meta")))


def measured(config):
    """What a training gives: the test accuracy after the last step, and what it took.

    `history` has (steps, test accuracy, seconds) of each evaluation; those seconds are by the clock on the wall, with
    whatever else the machine did meanwhile. `cpu_seconds` are the processor's, evaluations included.
    """
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        with contextlib.redirect_stdout(io.StringIO()):
            summary = train(config, run)
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    if "interrupted" in summary:
        raise SystemExit(summary["interrupted"])
    return {
        "accuracy": round(summary["test_accuracy"], 6), "steps_done": summary["steps"],
        "parameters": summary["parameters"], "multiply_adds": multiply_adds(config.model),
        "batch_size": min(config.batch_size, config.images or config.batch_size),
        "cpu_seconds": round(time.process_time() - start, 2),
        "history": [[row["step"], round(row["test_accuracy"], 6), round(row["seconds"], 2)] for row in rows],
    }  # fmt: skip


def stored():
    """The finished runs, each a dict."""
    return json.loads(FILE.read_text())["runs"] if FILE.exists() else []


def add(run):
    """Append a finished run to the file, a line each."""
    made = {"processor": processor(), "python": platform.python_version(), "numpy": np.__version__, "threads": 1}
    lines = ",\n".join(json.dumps(one) for one in [*stored(), run])
    files.write(FILE, f'{{"made with": {json.dumps(made)},\n"runs": [\n{lines}\n]}}\n'.encode())


def wanted(data, models, images, steps, seeds):
    """(data, model, images, steps, seed) of the runs that are asked for: a seed after the other, so that one that is
    stopped has every model."""
    return [(data, model, n, steps, seed) for seed in seeds for n in images for model in models]


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", choices=DATA, default="digits")
    parser.add_argument("--data-dir", help="folder with CIFAR-10")
    parser.add_argument("--images", type=int, nargs="+", help="numbers of training images; by default all four")
    parser.add_argument("--models", choices=FAMILY, nargs="+", default=list(MODELS), metavar="MODEL")
    parser.add_argument("--steps", type=int, help="of each run; by default 700 on digits, 1000 on CIFAR-10")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args(arguments)
    d = DATA[options.data]
    images, steps = options.images or d.images, options.steps or d.steps
    names = "data", "model", "images", "steps", "seed"
    for key in wanted(options.data, options.models, images, steps, options.seeds):
        if any(tuple(run[name] for name in names) == key for run in stored()):
            continue
        run = measured(configured(*key, options.data_dir))
        add(dict(zip(names, key)) | run)
        data, model, n, _, seed = key
        print(f"{data} {model:<24} n {n:>6,}  seed {seed}  {run['steps_done']} steps  {100 * run['accuracy']:.2f} %  "
              f"{run['cpu_seconds']:.0f} s", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
