"""Steps of data parallel training timed with 1, 2 and 4 ranks: `python -m tinyvit.bench.ranks`.

Each rank computes with one thread, as in `mpiexec -n 4 tinyvit train digits --threads 1`. More ranks than cores take
turns.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tinyvit.bench.machine import processor
from tinyvit.training.threads import cores


def seconds_a_step(ranks, preset, batch_size, epochs, folder):
    """Seconds of a step, with its share of the evaluations, of a training into the folder."""
    command = [sys.executable, "-m", "tinyvit", "train", preset, "--batch-size", batch_size, "--epochs", epochs,
               "--evaluate-every", epochs, "--threads", 1, "--device", "cpu", "--out", folder]  # fmt: skip
    if ranks > 1:
        program = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")
        if program is None:
            raise SystemExit("there is no mpiexec; install one: python -m pip install mpi4py mpich")
        command = [program, "-n", ranks, *command]
    ended = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if ended.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{ended.stderr}")
    summary = json.loads((folder / "summary.json").read_text())
    return summary["seconds"] / summary["steps"]


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="digits")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--epochs", type=int, default=30, help="of each training")
    options = parser.parse_args(arguments)
    print(f"{options.preset}, {options.batch_size} images a step, {processor()}, {cores()} cores\nranks   a step")
    with tempfile.TemporaryDirectory() as folder:
        for ranks in options.ranks:
            own = Path(folder, str(ranks))
            seconds = seconds_a_step(ranks, options.preset, options.batch_size, options.epochs, own)
            print(f"{ranks:>5}   {1e3 * seconds:.2f} ms", flush=True)


if __name__ == "__main__":
    main()
