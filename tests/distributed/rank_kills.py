"""Kill or stop one of the ranks of a training at random moments; resumed each time, it must end as if nothing had
happened, and each end must come within a minute, with one line that names the rank.

    python tests/distributed/rank_kills.py --ranks 2 --kills 20 --stops 5
"""

import argparse
import json
import random
import re
import signal
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


def hit(process, run, number, signals, draw):
    """Send a signal to a random rank at a random moment; returns (rank, seconds until the end, stderr), or
    None if the training was over before."""
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
    subprocess.run(["kill", f"-{signals.name[3:]}", str(ranks[rank])], check=True)
    out, err = process.communicate(timeout=70)
    return rank, time.monotonic() - began, out + err


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--stops", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    left = [signal.SIGKILL] * options.kills + [signal.SIGSTOP] * options.stops
    draw.shuffle(left)
    times = {signal.SIGKILL: [], signal.SIGSTOP: []}
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
            found = hit(process, run, options.ranks, left[-1], draw)
            if found is None:
                assert process.returncode == 0
                assert outcome(run) == outcome(folder / "whole"), "the result differs"
                run, trainings = folder / f"hit-{trainings}", trainings + 1
                continue
            rank, seconds, err = found
            lines = re.findall(r"^tinyvit: error: .*", err, re.MULTILINE)
            if not lines:  # it was hit while Python still loaded, and mpiexec alone can say it
                lines = re.findall(r"^YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed.*", err, re.MULTILINE)
            assert len(lines) == 1, err
            # Which one is missing isn't known before all ranks have come together.
            assert re.search(rf"rank {rank} \(process |ranks have come together|Killed \(signal 9\)", lines[0]), err
            times[left.pop()].append(seconds)
            print(f"{len(left)} left; {seconds:.1f} s: {lines[0]}", flush=True)
        if (run / "config.json").exists():
            subprocess.run(mpiexec(options.ranks, *tinyvit("train", "--resume", run)), check=True, capture_output=True)
            assert outcome(run) == outcome(folder / "whole"), "the result differs"
    for number, seconds in times.items():
        if seconds:
            print(f"{len(seconds)} times {number.name}: ended after {min(seconds):.1f} to {max(seconds):.1f} s")
    print(f"{trainings} trainings, each of which ended bit for bit as without")


if __name__ == "__main__":
    main()
