"""The cost of a bias in attention: `python -m tinyvit.bench.attention_bias`.

Attention and its backward, as a training step takes them: the batch split over threads, the memory of the last step
kept. A round is a turn without a bias and one with each, in random order. A row has, over all rounds, the median of the
time with the bias by that without it in the same round; in processor time, which other programs on the machine disturb
less, and by the clock.
"""

import argparse
import random
import sys
import time
from statistics import median

import numpy as np

from tinyvit import functional as F
from tinyvit import kernels
from tinyvit.bench.cases import AttentionCase
from tinyvit.bench.machine import describe
from tinyvit.bench.steps import projections
from tinyvit.training.memory import freed_memory_kept
from tinyvit.training.threads import map_threads, slices, thread_count

SCORES = 1 << 21  # of a turn, so that it takes some 30 ms
SHAPES = "NN", "HNN", "1HNN", "N", "B11N", "B1NN", "BH1N", "BHN1", "BHNN"
LEVELS = {"numpy": ("numpy", F.attention), "fast": ("fast", F.attention), "tiled": ("numpy", F.tiled_attention)}


def biases_for(case, seed=1):
    """Biases of all shapes by name, with None for no bias, and two masks of zeros and −∞."""
    generator, N = np.random.default_rng(seed), case.tokens
    sides = {"B": case.batch_size, "H": case.heads, "N": N, "1": 1}
    biases = {"no bias": None}
    for shape in SHAPES:
        biases[f"({', '.join(shape)})"] = generator.standard_normal([sides[axis] for axis in shape], "float32")
    masks = {"causal mask (N, N)": np.triu(np.ones((N, N), bool), 1),
             "padding mask (B, 1, 1, N)": generator.random((case.batch_size, 1, 1, N)) < 0.2}  # fmt: skip
    return biases | {name: np.where(hidden, -np.inf, 0).astype("float32") for name, hidden in masks.items()}


def turn(attention, arrays, bias, threads):
    """(processor seconds, seconds) of attention and its backward."""
    q, k, v, dheads = arrays

    def run(part):
        each = bias is not None and bias.ndim == 4 and len(bias) > 1
        _, cache = attention(q[part], k[part], v[part], bias[part] if each else bias)
        F.attention_backward(dheads[part], cache)

    before = time.process_time(), time.perf_counter()
    with freed_memory_kept():
        map_threads(run, slices(len(q), threads), threads)
    return time.process_time() - before[0], time.perf_counter() - before[1]


def ratios(attention, case, rounds, threads):
    """(name, median ratio of processor time, median ratio by the clock) of each bias."""
    qkv, dheads, _ = projections(case, "float32")
    arrays = *qkv.transpose(2, 0, 3, 1, 4), dheads.transpose(0, 2, 1, 3)
    biases, order = biases_for(case), random.Random(0)
    names, seconds = list(biases), {name: [] for name in biases}
    for _ in range(rounds + 1):
        order.shuffle(names)
        for name in names:
            seconds[name].append(turn(attention, arrays, biases[name], threads))
    without = seconds.pop("no bias")[1:]  # the first round loads libraries
    for name, with_bias in seconds.items():
        yield name, *(median(x[i] / y[i] for x, y in zip(with_bias[1:], without)) for i in (0, 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.error = refuse
    parser.add_argument("--tokens", type=positive, nargs="+", default=[65, 256])
    parser.add_argument("--width", type=positive, default=64, help="of a head; there are 192 / width heads")
    parser.add_argument("--rounds", type=positive, default=20)
    options, threads = parser.parse_args(), thread_count()
    machine = describe()
    print(f"{machine['processor']}, {threads} threads, load {machine['load']}; median ratio of processor time, of time")
    heads = max(1, 192 // options.width)
    for name, (level, attention) in LEVELS.items():
        if level not in kernels.available():
            continue
        for tokens in options.tokens:
            case = AttentionCase("", max(threads, SCORES // (heads * tokens**2)), tokens, heads, options.width)
            print(f"{name}: {case.title}", flush=True)
            with kernels.using(level):
                for bias, processor, clock in ratios(attention, case, options.rounds, threads):
                    print(f"  {bias:26s}{processor:6.2f}{clock:6.2f}", flush=True)


def positive(text):
    """A number of the command line, which must be at least 1."""
    if not text.isdecimal() or int(text) < 1:
        refuse(f"expected a whole number of at least 1, got {text!r}")
    return int(text)


def refuse(message):
    """End as every command does: one line, exit status 2."""
    print(f"attention_bias: error: {message}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
