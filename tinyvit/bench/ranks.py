"""The cost of data parallel training, predicted and measured: `python -m tinyvit.bench.ranks`.

A step of p ranks, each with b samples, takes

    T = compute(b) + reduce(p) + exchange(p)
    compute(b) = fixed + each · b                        measured in one process with one thread
    reduce(p)  = 2 log₂p · α + 2 (p − 1)/p · bytes / β    a reduce-scatter and an all-gather by halves
    exchange(p) = (1 + log₂p) · α                         losses, metrics and signals

with the latency α and the bandwidth β of the network. Thakur, Rabenseifner & Gropp 2005, "Optimization of collective
communication operations in MPICH", section 4. More ranks than cores take turns: compute is then longer as many times.
"""

import argparse
import json
import math
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path

import numpy as np

from tinyvit.bench.machine import processor
from tinyvit.training import preset, train_step
from tinyvit.training.distributed import launched
from tinyvit.training.threads import cores
from tinyvit.training.trainer import Trainer

NETWORKS = {"1 Gbit/s": (50e-6, 1e9 / 8), "100 Gbit/s": (5e-6, 1e11 / 8)}  # name: (latency, bytes per second)


def step_seconds(cost, ranks, samples, on_cores=math.inf):
    """Seconds of a step of `ranks` with `samples` each; where they share fewer cores, they take turns.

    cost    fixed and each: seconds of a step's compute, and of a sample; bytes of gradients; latency α in seconds;
            bandwidth β in bytes per second
    """
    compute = (cost["fixed"] + cost["each"] * samples) * max(1, ranks / on_cores)
    if ranks == 1:
        return compute
    reduce = 2 * math.log2(ranks) * cost["latency"] + 2 * (ranks - 1) / ranks * cost["bytes"] / cost["bandwidth"]
    return compute + reduce + (1 + math.log2(ranks)) * cost["latency"]


def worker(name, batch_size, steps):
    """Measure steps, as a rank or alone; the first rank prints {"step": median seconds, "bytes", and those of sums}."""
    with launched() as ranks:
        trainer = Trainer(replace(preset(name), batch_size=batch_size, device="cpu", threads=1), ranks=ranks)
        times = []
        for batch in islice(cycle(list(islice(trainer.batches(), 4))), steps):
            trainer.batch = 0
            step = trainer.next_step(*batch)
            start = time.perf_counter()
            trainer.finish_step(step, train_step(**step))
            times.append(time.perf_counter() - start)
        size = trainer.model.storage.data.nbytes
        found = {"step": statistics.median(times), "bytes": size}
        if ranks.size > 1:
            found["latency"] = seconds_of_sum(ranks, 8) / (2 * math.log2(ranks.size))
            found["bandwidth"] = 2 * (ranks.size - 1) / ranks.size * size / seconds_of_sum(ranks, size)
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


def measured(ranks, *arguments):
    """Start a worker with this many ranks and return its measurement."""
    command = [sys.executable, "-m", "tinyvit.bench.ranks", "--worker", *map(str, arguments)]
    if ranks > 1:
        program = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")
        if program is None:
            raise SystemExit("there is no mpiexec; install one: python -m pip install mpi4py mpich")
        command = [program, "-n", str(ranks), *command]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{ended.stderr}")
    return json.loads(ended.stdout.splitlines()[-1])


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="digits")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--steps", type=int, default=200, help="that each measurement takes")
    parser.add_argument("--worker", nargs=3, metavar=("PRESET", "BATCH", "STEPS"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        return worker(options.worker[0], *map(int, options.worker[1:]))
    if not any(count > 1 for count in options.ranks):
        parser.error("expected at least one number of --ranks above 1")
    name, batch, steps = options.preset, options.batch_size, options.steps
    one, quarter = measured(1, name, batch, steps), measured(1, name, batch // 4, steps)
    found = {count: measured(count, name, batch, steps) for count in options.ranks if count > 1}
    each = max(0.0, one["step"] - quarter["step"]) / (batch - batch // 4)
    cost = found[min(found)] | {"fixed": max(0.0, one["step"] - each * batch), "each": each}
    print(f"{name}, {batch} images a step, {processor()}, {cores()} cores, {cost['bytes'] / 1e6:.2f} MB of gradients, "
          f"latency {1e6 * cost['latency']:.0f} µs, {cost['bandwidth'] / 1e9:.2f} GB/s\n"
          "ranks   predicted    measured")  # fmt: skip
    for count, measurement in ({1: one} | found).items():
        predicted = step_seconds(cost, count, batch / count, cores())
        print(f"{count:>5}   {1e3 * predicted:>6.2f} ms   {1e3 * measurement['step']:>6.2f} ms")
    networks = {"here": (cost["latency"], cost["bandwidth"])} | NETWORKS
    total = max(batch, 1024)
    print(f"\na core each: times as fast as one rank, with {total} images in all, and with {batch} in each\n"
          f"ranks{''.join(f'{name:>22}' for name in networks)}")  # fmt: skip
    for count in (2**power for power in range(11)):
        line = f"{count:>5}"
        for latency, bandwidth in networks.values():
            network = cost | {"latency": latency, "bandwidth": bandwidth}
            strong = step_seconds(cost, 1, total) / step_seconds(network, count, total / count)
            weak = count * step_seconds(cost, 1, batch) / step_seconds(network, count, batch)
            line += f"{strong:>13.1f}{weak:>9.1f}"
        print(line)


if __name__ == "__main__":
    main()
