"""How good the digits are that a DiT makes, with and without guidance, and what its patch size is worth.

    python notebooks/results/diffusion.py

Trains the preset `dit-digits`, and a smaller model with patches of 4, 2 and 1 pixels, for as many steps each. Of each,
digits of all classes are made and judged: by a classifier that was trained on the real training digits (does it see the
class that was asked for?), and by the distance to the nearest training digit (a copy has none; the test digits' is what
new digits have). Each training and each judgement is added to `diffusion.json` at once, and none that is there is run
again.
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
from sklearn.svm import SVC

from tinyvit import files
from tinyvit.bench.machine import processor
from tinyvit.data import load
from tinyvit.training import OptimConfig, train
from tinyvit.training.presets import preset
from tinyvit.training.sampling import sample
from tinyvit.training.trained import load_trained

FILE = Path(__file__).with_suffix(".json")
PRESET = preset("dit-digits")
# Small and short, so that 64 tokens a digit take seconds; by Muon, which needs fewer steps.
SMALL = replace(
    PRESET, model=replace(PRESET.model, embed_dim=48, depth=2), epochs=30, evaluate_every=30,
    optim=OptimConfig(name="muon", lr=0.02, adam_lr=4e-3, weight_decay=0.0, ema=0.995),
)  # fmt: skip
MODELS = {"dit-digits": PRESET} | {
    f"patch {patch}": replace(SMALL, model=replace(SMALL.model, patch_size=patch)) for patch in (4, 2, 1)
}
JUDGED = {"dit-digits": (40, [("ddim", 50, 2.0), ("ddim", 50, 1.0), ("ddim", 50, 0.0), ("ddim", 50, 4.0),
                              ("ddim", 10, 2.0), ("ddpm", 100, 2.0)])}  # fmt: skip
SWEPT = 20, [("ddim", 25, 2.0), ("ddim", 25, 1.0)]


class Judge:
    """A classifier and the training digits, against which new digits are held."""

    def __init__(self):
        digits = load("digits")
        self.real, self.test = (part.images.reshape(len(part), -1) / part.scale for part in digits)
        self.classifier = SVC(C=10).fit(self.real, digits.train.labels)
        self.accuracy = round(self.classifier.score(self.test, digits.test.labels), 4)
        self.distance = round(float(self.nearest(self.test).mean()), 4)

    def nearest(self, digits):
        """The distance of each digit (n, 64) to the nearest of the training digits."""
        return np.sqrt(((digits[:, None] - self.real) ** 2).sum(-1).min(1))

    def __call__(self, digits, labels):
        """The share of digits (n, 1, 8, 8) that look like their class, and distances to training digits."""
        digits = digits.reshape(len(digits), -1)
        near = self.nearest(digits)
        return {"agreement": round(float((self.classifier.predict(digits) == labels).mean()), 4),
                "distance": round(float(near.mean()), 4), "least": round(float(near.min()), 4)}  # fmt: skip


def made(run, each, method, steps, guidance, threads=None):
    """Digits of a run from 0 to 1, `each` of every class, and their labels."""
    trained = load_trained(run, "cpu")
    mean, std = (np.array(x)[:, None, None] for x in (trained.preprocessing.mean, trained.preprocessing.std))
    labels = np.repeat(np.arange(10), each)
    images, _ = sample(trained.learner, trained.task.levels, labels, steps=steps, guidance=guidance, method=method,
                       limits=(-mean / std, (1 - mean) / std), threads=threads)  # fmt: skip
    return np.clip(images * std + mean, 0, 1), labels


def stored():
    """The finished trainings and judgements, each a dict."""
    return json.loads(FILE.read_text())["rows"] if FILE.exists() else []


def add(row, judge):
    """Append a row to the file."""
    about = {"processor": processor(), "python": platform.python_version(), "numpy": np.__version__,
             "classifier on test digits": judge.accuracy, "distance of test digits": judge.distance}  # fmt: skip
    lines = ",\n".join(json.dumps(one) for one in [*stored(), row])
    files.write(FILE, f'{{"about": {json.dumps(about)},\n"rows": [\n{lines}\n]}}\n'.encode())
    print(row, flush=True)


def known(**row):
    return any(row.items() <= one.items() for one in stored())


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", choices=MODELS, nargs="+", default=list(MODELS), metavar="MODEL")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--runs", type=Path, default=Path("runs/diffusion"), help="folder for the runs")
    options = parser.parse_args(arguments)
    judge = Judge()
    for name in options.models:
        run = options.runs / name.replace(" ", "-")
        if not (run / "summary.json").exists():
            before = time.process_time()
            with contextlib.redirect_stdout(io.StringIO()):
                summary = train(replace(MODELS[name], device="cpu", threads=options.threads), run)
            add({"model": name, "epochs": summary["epochs"], "parameters": summary["parameters"],
                 "test_loss": round(summary["test_loss"], 4), "seconds": round(summary["seconds"], 1),
                 "processor_seconds": round(time.process_time() - before, 1)}, judge)  # fmt: skip
        each, wanted = JUDGED.get(name, SWEPT)
        for method, steps, guidance in wanted:
            row = {"model": name, "method": method, "steps": steps, "guidance": guidance, "images": 10 * each}
            if not known(**row):
                before = time.process_time()
                found = judge(*made(run, each, method, steps, guidance, options.threads))
                add({**row, **found, "processor_seconds": round(time.process_time() - before, 1)}, judge)


if __name__ == "__main__":
    main()
