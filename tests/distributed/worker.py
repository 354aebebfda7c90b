"""Trains small models of many kinds and saves what came out: run by the tests alone, and as several ranks.

    python tests/distributed/worker.py OUT.npz FOLDER CASE…
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from small_trainings import CASES

from tinyvit.tensors import load_tensors
from tinyvit.training import train
from tinyvit.training.display import Display


class Losses(Display):
    """Shows nothing, and keeps each step's loss."""

    def __init__(self):
        self.losses = []

    def step(self, epoch, images, result):
        self.losses.append(float(result.loss))

    def print(self, text):
        pass


def main(out, folder, *cases):
    from tinyvit.training.distributed import join_ranks

    found = {}
    with join_ranks() as ranks:
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
