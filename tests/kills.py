"""Kill a training repeatedly at random moments; resumed each time, it must end as if it had never been killed.

    python tests/kills.py --kills 100

SIGKILL leaves a process no chance to save anything: only what is on the disk at that moment survives.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from steps import outcome

OPTIONS = """
    --model.embed-dim 16 --model.depth 2 --model.drop-rate 0.1 --batch-size 128 --threads 2 --device cpu
    --save-minutes 0.0005 --optim.name muon --optim.lr 0.02 --optim.ema 0.95 --augment.mixup 0.2 --augment.crop 1
"""


def kill_and_resume(folder, kills, epochs, seed=0, ranks=1):
    """How many of `kills` hit a training before it finished; AssertionError if a kill changed the result.

    ranks   processes that train together, of which a random one is killed each time
    """
    sys.path.insert(0, str(Path(__file__).parent / "distributed"))
    from launching import mpiexec, ranks_of

    def command(*arguments):
        alone = [sys.executable, "-m", "tinyvit", "train", *map(str, arguments)]
        return alone if ranks == 1 else mpiexec(ranks, *alone)

    options = ["digits", *OPTIONS.split(), "--epochs", epochs]
    started = time.monotonic()
    subprocess.run(command(*options, "--out", folder / "whole"), check=True, capture_output=True)
    duration = time.monotonic() - started

    draw, killed, finished = random.Random(seed), 0, False
    run = folder / "killed"
    arguments = command(*options, "--out", run)
    while killed < kills:
        process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            _, err = process.communicate(timeout=draw.uniform(0.1, max(min(2.5, 0.5 * duration), 0.1 * duration)))
            assert process.returncode == 0, err
            finished = True
            break
        except subprocess.TimeoutExpired:
            os.kill(draw.choice([*ranks_of(run).values()] or [process.pid]), signal.SIGKILL)
            process.communicate(timeout=60)
            killed += 1
        if (run / "config.json").exists():
            arguments = command("--resume", run)
    if not finished:
        ended = subprocess.run(arguments, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
    assert outcome(run) == outcome(folder / "whole"), f"the result differs after {killed} kills"
    return killed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=200, help="of a training that is killed until it has finished")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ranks", type=int, default=1)
    options = parser.parse_args()
    killed = trainings = 0
    while killed < options.kills:
        with tempfile.TemporaryDirectory() as folder:
            left, seed = options.kills - killed, options.seed + trainings
            killed += kill_and_resume(Path(folder), left, options.epochs, seed, options.ranks)
        trainings += 1
        print(f"{killed} kills in {trainings} trainings, each of which ended bit for bit as without", flush=True)


if __name__ == "__main__":
    main()
