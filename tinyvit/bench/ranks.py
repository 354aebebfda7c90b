"""The cost of data parallel training, predicted and measured: `python -m tinyvit.bench.ranks`.

A step of p ranks, each with b samples, takes

    T = compute(b) + reduce(p) + exchange(p)
    compute(b) = fixed + each · b                        measured in one process with one thread
    reduce(p)  = 2 log₂p · α + 2 (p − 1)/p · bytes / β    a reduce-scatter and an all-gather by halves
    exchange(p) = log₂p · α + bookkeeping                 losses, metrics and signals

with the latency α and the bandwidth β of the network. Thakur, Rabenseifner & Gropp 2005, "Optimization of collective
communication operations in MPICH", section 4. More ranks than cores take turns: compute is then longer as many times.
"""

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from itertools import cycle
from pathlib import Path

import numpy as np

from tinyvit.training import preset, train_step
from tinyvit.training.distributed import launched
from tinyvit.training.threads import cores
from tinyvit.training.trainer import Trainer

MOST = 1024  # ranks
GIGABIT = 1e9 / 8


@dataclass(frozen=True)
class Cost:
    """fixed, each   seconds of a step's compute, and of a sample
    bytes         of gradients that are added up
    latency       seconds of a message, α
    bandwidth     bytes per second, β
    bookkeeping   seconds of a step beside it
    """

    fixed: float
    each: float
    bytes: int
    latency: float
    bandwidth: float
    bookkeeping: float = 0.0

    def compute(self, samples, ranks=1, on_cores=None):
        """Seconds of compute; where `ranks` share fewer cores, they take turns."""
        turns = 1 if on_cores is None else max(1, ranks / on_cores)
        return (self.fixed + self.each * samples) * turns

    def reduce(self, ranks):
        """Seconds in which the gradients of all ranks are added up."""
        return 2 * math.log2(ranks) * self.latency + 2 * (ranks - 1) / ranks * self.bytes / self.bandwidth

    def step(self, ranks, samples, on_cores=None):
        """Seconds of a step of `ranks` with `samples` each."""
        compute = self.compute(samples, ranks, on_cores)
        if ranks == 1:
            return compute
        exchange = math.log2(ranks) * self.latency + self.bookkeeping
        return compute + self.reduce(ranks) + exchange


# -- measured ----------------------------------------------------------------------------------------------------------


def worker(name, batch_size, seconds):
    """Measure steps, as a rank or alone: {"step": median seconds, "latency": …, "bandwidth": …} in the first rank."""
    with launched() as ranks:
        trainer = Trainer(replace(preset(name), batch_size=batch_size, device="cpu", threads=1), ranks=ranks)
        batches, times = cycle(list(trainer.batches())[:4]), []
        began = ranks.gather(time.perf_counter())[0]
        while len(times) < 5 or ranks.gather(time.perf_counter() - began)[0] < seconds:
            trainer.batch = 0
            step = trainer.next_step(*next(batches))
            start = time.perf_counter()
            trainer.finish_step(step, train_step(**step))
            times.append(time.perf_counter() - start)
        found = {"step": statistics.median(times[2:]), "bytes": trainer.model.storage.data.nbytes}
        if ranks.size > 1:
            found["latency"] = seconds_of_sum(ranks, 8) / (2 * math.log2(ranks.size))
            share = 2 * (ranks.size - 1) / ranks.size
            found["bandwidth"] = share * found["bytes"] / seconds_of_sum(ranks, found["bytes"])
        if ranks.leads:
            print(json.dumps(found))


def seconds_of_sum(ranks, size, times=30):
    """Median seconds in which arrays of `size` bytes are added up."""
    array, found = np.ones(size // 4, "float32"), []
    for _ in range(times):
        ranks.gather(None)  # all begin together
        start = time.perf_counter()
        ranks.link.add_up(array)
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def run(ranks, *arguments):
    """The measurements of a worker that was started with this many ranks."""
    command = [sys.executable, "-m", "tinyvit.bench.ranks", "--worker", *map(str, arguments)]
    if ranks > 1:
        found = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        if found is None:
            raise SystemExit("there is no mpiexec; install one: python -m pip install mpi4py mpich")
        command = [found, "-n", str(ranks), *command]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{ended.stderr}")
    return json.loads(ended.stdout.splitlines()[-1])


def measured(name, batch_size, seconds, counts):
    """(Cost of this machine, {ranks: seconds of a step of the whole batch})."""
    steps = {1: run(1, name, batch_size, seconds)}
    small = run(1, name, batch_size // 4, seconds)
    each = max(0.0, steps[1]["step"] - small["step"]) / (batch_size - batch_size // 4)
    fixed = max(0.0, steps[1]["step"] - each * batch_size)
    steps |= {count: run(count, name, batch_size, seconds) for count in counts if count > 1}
    two = steps[min(count for count in steps if count > 1)]
    cost = Cost(fixed, each, steps[1]["bytes"], two["latency"], two["bandwidth"], two["latency"])
    return cost, {count: found["step"] for count, found in steps.items()}


# -- shown -------------------------------------------------------------------------------------------------------------


def table(cost, steps, batch_size):
    """Prediction beside measurement, as text."""
    lines = ["ranks   predicted    measured   predicted/measured"]
    for ranks, seconds in steps.items():
        expected = cost.step(ranks, batch_size / ranks, cores())
        lines.append(f"{ranks:>5}   {1e3 * expected:>6.2f} ms   {1e3 * seconds:>6.2f} ms   {expected / seconds:>18.2f}")
    return "\n".join(lines)


def networks(cost):
    """The same compute on a few networks: name -> Cost."""
    return {
        "as here, in one machine": cost,
        "1 Gbit/s Ethernet": replace(cost, latency=50e-6, bandwidth=GIGABIT),
        "100 Gbit/s": replace(cost, latency=5e-6, bandwidth=100 * GIGABIT),
    }


def draw(cost, batch_size, path):
    """Weak and strong scaling for 1 to 1,024 ranks on a core each, as a picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    counts = [2**power for power in range(int(math.log2(MOST)) + 1)]
    total = max(batch_size, MOST)  # so that there is an image for each rank
    figure, (weak, strong) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for name, network in networks(cost).items():
        one, all_of_it = network.step(1, batch_size), network.step(1, total)
        weak.plot(counts, [one / network.step(p, batch_size) for p in counts], marker=".", label=name)
        strong.plot(counts, [all_of_it / network.step(p, total / p) for p in counts], marker=".", label=name)
    strong.plot(counts, counts, color="0.7", label="ideal")
    weak.set(xscale="log", xlabel="ranks", ylabel="efficiency", ylim=(0, 1.05), title=f"weak: {batch_size} a rank")
    strong.set(xscale="log", yscale="log", xlabel="ranks", ylabel="speed-up", title=f"strong: {total} in all")
    strong.legend()
    figure.savefig(path, dpi=100)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="digits")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--seconds", type=float, default=5, help="that each measurement takes")
    parser.add_argument("--out", default="ranks.png", help="the picture; a .json of the same name has the figures")
    parser.add_argument("--worker", nargs=3, metavar=("PRESET", "BATCH", "SECONDS"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        name, batch_size, seconds = options.worker
        worker(name, int(batch_size), float(seconds))
        return
    if not any(count > 1 for count in options.ranks):
        parser.error("expected at least one number of --ranks above 1")
    cost, steps = measured(options.preset, options.batch_size, options.seconds, options.ranks)
    print(
        f"{options.preset}, {options.batch_size} images a step, {cores()} cores: {1e3 * cost.fixed:.2f} ms + "
        f"{1e6 * cost.each:.1f} µs an image; {cost.bytes / 1e6:.2f} MB of gradients, latency {1e6 * cost.latency:.0f} "
        f"µs, {cost.bandwidth / 1e9:.2f} GB/s\n\n{table(cost, steps, options.batch_size)}"
    )
    draw(cost, options.batch_size, options.out)
    figures = {"preset": options.preset, "batch_size": options.batch_size, "cores": cores(), **asdict(cost)}
    figures |= {"measured": {str(ranks): seconds for ranks, seconds in steps.items()}}
    Path(options.out).with_suffix(".json").write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
