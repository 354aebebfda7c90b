"""Kill one of the ranks of a training at random moments: all ranks must end within a minute, and the training, resumed
each time, as if nothing had happened.

    python tests/distributed/rank_kills.py --ranks 2 --kills 20
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from launching import mpiexec, tinyvit

OPTIONS = """
    --model.embed-dim 16 --model.depth 2 --model.drop-rate 0.1 --batch-size 128 --threads 1 --device cpu
    --save-minutes 0.0005 --optim.ema 0.95 --augment.mixup 0.2 --augment.crop 1
"""


def ranks_of(run):
    """The process of every rank whose command names a run folder, by its number."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = dict(line.split("=", 1) for line in path.read_bytes().decode().split("\0") if "=" in line)
            command = path.with_name("cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if "PMI_RANK" in variables and run in command:
            found[int(variables["PMI_RANK"])] = int(path.parent.name)
    return found


def outcome(run):
    """Weights and metrics, without their times."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        del row["seconds"], row["data_wait"]
    return (run / "model.safetensors").read_bytes(), rows


def hit(process, run, number, draw):
    """Kill a random rank at a random moment; returns (rank, seconds until the end), or None if the training was over
    before."""
    deadline, ranks = time.monotonic() + 60, {}
    while len(ranks) < number and time.monotonic() < deadline:
        time.sleep(0.05)
        ranks = ranks_of(str(run))
    if draw.random() < 0.8:  # else while it still starts
        next((line for line in process.stdout if line.startswith("  epoch")), None)
    try:
        process.communicate(timeout=draw.uniform(0.0, 4.0))
        return None
    except subprocess.TimeoutExpired:
        pass
    rank, began = draw.randrange(number), time.monotonic()
    subprocess.run(["kill", "-KILL", str(ranks[rank])], check=True)
    process.communicate(timeout=60)
    assert process.returncode != 0
    return rank, time.monotonic() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    left = options.kills
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        train = tinyvit("train", "digits", *OPTIONS.split(), "--epochs", options.epochs)
        subprocess.run(mpiexec(options.ranks, *train, "--out", folder / "whole"), check=True, capture_output=True)
        run, trainings = folder / "hit-0", 1
        while left:
            resumed = (run / "config.json").exists()
            command = tinyvit("train", "--resume", run) if resumed else [*train, "--out", run]
            process = subprocess.Popen(
                mpiexec(options.ranks, *command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )  # fmt: skip
            found = hit(process, run, options.ranks, draw)
            if found is None:
                assert process.returncode == 0
                assert outcome(run) == outcome(folder / "whole"), "the result differs"
                run, trainings = folder / f"hit-{trainings}", trainings + 1
                continue
            rank, seconds = found
            left -= 1
            print(f"{left} left; rank {rank} was killed, and all had ended after {seconds:.1f} s", flush=True)
        if (run / "config.json").exists():
            subprocess.run(mpiexec(options.ranks, *tinyvit("train", "--resume", run)), check=True, capture_output=True)
            assert outcome(run) == outcome(folder / "whole"), "the result differs"
    print(f"{trainings} trainings, each of which ended bit for bit as without")


if __name__ == "__main__":
    main()
