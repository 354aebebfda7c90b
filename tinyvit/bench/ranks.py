"""Steps of data parallel training timed with 1, 2 and 4 ranks: `python -m tinyvit.bench.ranks`.

Each rank computes with one thread, as in `mpiexec -n 4 tinyvit train digits --threads 1`. More ranks than cores take
turns.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import tyro

from tinyvit.bench.machine import processor
from tinyvit.training.threads import cores


def seconds_a_step(ranks, preset, batch_size, epochs):
    """Seconds of a step, with its share of the evaluations, of a training in so many ranks."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tinyvit", "train", preset, "--batch-size", batch_size, "--epochs", epochs,
                   "--evaluate-every", epochs, "--threads", 1, "--device", "cpu", "--out", folder]  # fmt: skip
        if ranks > 1:
            program = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")
            if program is None:
                raise SystemExit("there is no mpiexec; install one: python -m pip install mpi4py mpich")
            command = [program, "-n", ranks, *command]
        if status := subprocess.run([*map(str, command)], stdout=subprocess.DEVNULL).returncode:
            raise SystemExit(status)  # the command has said why
        summary = json.loads(Path(folder, "summary.json").read_text())
    return summary["seconds"] / summary["steps"]


def main(preset: str = "digits", batch_size: int = 256, ranks: tuple[int, ...] = (1, 2, 4), epochs: int = 30):
    """Time steps of data parallel training.

    Args:
        preset: What is trained.
        batch_size: Images a step, of all ranks together.
        ranks: How many ranks, one training after the other.
        epochs: Epochs of each training.
    """
    print(f"{preset}, {batch_size} images a step, {processor()}, {cores()} cores\nranks   a step")
    for number in ranks:
        print(f"{number:>5}   {1e3 * seconds_a_step(number, preset, batch_size, epochs):.2f} ms", flush=True)


if __name__ == "__main__":
    tyro.cli(main, prog="python -m tinyvit.bench.ranks")
