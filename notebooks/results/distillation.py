"""How much a teacher helps a ViT with few images: a DeiT on 5,000 images of CIFAR-10, with and without one.

    python notebooks/results/distillation.py --data-dir FOLDER

The teacher is a ResNet that has learned from the same 5,000 images. All students have the same shape, recipe and number
of steps, and see the same images; only the loss differs. Goes on where it was stopped: each finished run is added to
`distillation.json` at once, and none that is there is run again. Learned from are the first images that the run's seed
draws, judged the test images after the last step.
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
from tinyvit.data import Augmentation
from tinyvit.models import DeiTConfig
from tinyvit.training import train
from tinyvit.training.config import InitConfig, OptimConfig, TrainConfig
from tinyvit.training.presets import preset
from tinyvit.training.tasks.distillation import DistillationOptions
from tinyvit.training.trained import load_data, load_trained

FILE = Path(__file__).with_suffix(".json")
IMAGES, EPOCHS, TEACHER_EPOCHS, BATCH = 5000, 30, 30, 100
MEASURED = 1000  # test images on which the tokens are compared

STUDENT = DeiTConfig(**vars(preset("cifar10-cpu").model) | {"global_pool": "token"})
OPTIM = OptimConfig(
    name="muon", lr=0.012, adam_lr=0.01, weight_decay=0.05, schedule="linear", warmup=0.1, label_smoothing=0.1,
    small_sizes=(16, 24), small_until=(0.4, 0.7),
)  # fmt: skip
STUDENTS = {  # kind, λ, τ
    "no teacher": None,
    "hard, λ 0.5": ("hard", 0.5, 1.0),
    "hard, λ 0.9": ("hard", 0.9, 1.0),
    "soft, λ 0.5, τ 3": ("soft", 0.5, 3.0),
    "soft, λ 0.9, τ 3": ("soft", 0.9, 3.0),
    "soft, λ 0.9, τ 1": ("soft", 0.9, 1.0),
}


def teacher(seed, data_dir, threads):
    """The configuration of the teacher: the preset `cifar10-resnet` on as many images."""
    known = preset("cifar10-resnet")
    return replace(known, images=IMAGES, epochs=TEACHER_EPOCHS, batch_size=BATCH, seed=seed, data_dir=data_dir,
                   threads=threads, device="cpu", evaluate_every=TEACHER_EPOCHS)  # fmt: skip


def student(name, seed, teacher, data_dir, threads):
    """The configuration of a student; without a teacher, a DeiT whose two heads learn from the labels."""
    common = dict(
        dataset="cifar10", model=STUDENT, architecture="deit", epochs=EPOCHS, batch_size=BATCH, images=IMAGES,
        seed=seed, data_dir=data_dir, threads=threads, device="cpu", evaluate_every=EPOCHS,
        init=InitConfig(whiten=True), optim=OPTIM, augment=Augmentation(crop=4, flip=True),
    )  # fmt: skip
    if STUDENTS[name] is None:
        return TrainConfig(**common)
    kind, share, temperature = STUDENTS[name]
    return TrainConfig(**common, task="distillation",
                       objective=DistillationOptions(str(teacher), kind, share, temperature))  # fmt: skip


def trained(config, run):
    """The summary of a training, which goes on if it was begun, and the processor's seconds."""
    start = time.process_time()
    with contextlib.redirect_stdout(io.StringIO()):
        summary = train(config, run)
    if "interrupted" in summary:
        raise SystemExit(summary["interrupted"])
    return summary, round(time.process_time() - start, 1)


def likeness(run, data_dir):
    """Mean cosine between class and distillation token after the embedding and each block, and how often the heads
    agree with each other on test images."""
    model, test = load_trained(run, "cpu").model, load_data(load_trained(run, "cpu"), data_dir).test
    images = test.normalise(test.images[:MEASURED], "float32")
    cosines = []
    for layer in range(model.depth + 1):
        tokens = model.features(images, layer)
        a, b = (x / np.sqrt((x * x).sum(-1, keepdims=True)) for x in (tokens[:, 0], tokens[:, 1]))
        cosines.append(round(float((a * b).sum(-1).mean()), 4))
    (cls, dist), _ = model.logits_by_head(images)
    return {"cosines": cosines, "heads_agree": round(float((cls.argmax(1) == dist.argmax(1)).mean()), 4)}


def stored():
    """The finished runs, each a dict."""
    return json.loads(FILE.read_text())["runs"] if FILE.exists() else []


def add(run):
    """Append a finished run to the file, a line each."""
    made = {"processor": processor(), "python": platform.python_version(), "numpy": np.__version__}
    lines = ",\n".join(json.dumps(one) for one in [*stored(), run])
    files.write(FILE, f'{{"made with": {json.dumps(made)},\n"runs": [\n{lines}\n]}}\n'.encode())


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data-dir", help="folder with CIFAR-10")
    parser.add_argument("--students", choices=STUDENTS, nargs="+", default=list(STUDENTS), metavar="STUDENT")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--threads", type=int)
    parser.add_argument("--runs", type=Path, default=Path("runs/distillation"), help="folder for the runs")
    options = parser.parse_args(arguments)
    for seed in options.seeds:
        own = options.runs / f"teacher-{seed}"
        done = [run["name"] for run in stored() if run["seed"] == seed]
        missing = [name for name in options.students if name not in done]
        if "teacher" not in done or (missing and not own.exists()):
            missing = ["teacher", *missing]
        for name in missing:
            run = own if name == "teacher" else options.runs / f"{name.replace(', ', '-').replace(' ', '')}-{seed}"
            made = (options.data_dir, options.threads)
            config = teacher(seed, *made) if name == "teacher" else student(name, seed, own, *made)
            summary, seconds = trained(config, run)
            if name in done:  # a teacher whose folder was gone
                continue
            more = {} if name == "teacher" else likeness(run, options.data_dir)
            accuracy = round(summary["test_accuracy"], 6)
            add({"name": name, "seed": seed, "accuracy": accuracy, "parameters": summary["parameters"],
                 "steps": summary["steps"], "cpu_seconds": seconds, **more})  # fmt: skip
            print(f"{name:<18} seed {seed}  {100 * accuracy:.2f} %  {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
