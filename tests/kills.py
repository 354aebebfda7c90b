"""Kill a training repeatedly at random moments; resumed each time, it must end as if it had never been killed.

    python tests/kills.py --kills 100

SIGKILL leaves a process no chance to save anything: only what is on the disk at that moment survives.
"""

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

OPTIONS = """
    --model.embed-dim 16 --model.depth 2 --model.drop-rate 0.1 --batch-size 128 --threads 2 --device cpu
    --save-minutes 0.0005 --optim.name muon --optim.lr 0.02 --optim.ema 0.95 --augment.mixup 0.2 --augment.crop 1
"""


def command(*arguments):
    return [sys.executable, "-m", "tinyvit", "train", *map(str, arguments)]


def position(checkpoint):
    """(step, epoch): "step-00000110-epoch-9" is written before "step-00000110-epoch-10" if time is up just then."""
    return tuple(int(number) for number in re.findall(r"\d+", checkpoint.name))


def outcome(run):
    """Weights, last checkpoint, and metrics without their times."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        del row["seconds"], row["data_wait"]
    newest = max((run / "checkpoints").glob("step-*.safetensors"), key=position)
    return (run / "model.safetensors").read_bytes(), newest.name, newest.read_bytes(), rows


def kill_and_resume(folder, kills, epochs, seed=0):
    """How many of `kills` hit a training before it finished; AssertionError if a kill changed the result."""
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
            _, err = process.communicate(timeout=draw.uniform(0.1, max(2.5, 0.1 * duration)))
            assert process.returncode == 0, err
            finished = True
            break
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
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
    options = parser.parse_args()
    killed = trainings = 0
    while killed < options.kills:
        with tempfile.TemporaryDirectory() as folder:
            killed += kill_and_resume(Path(folder), options.kills - killed, options.epochs, options.seed + trainings)
        trainings += 1
        print(f"{killed} kills in {trainings} trainings, each of which ended bit for bit as without", flush=True)


if __name__ == "__main__":
    main()
