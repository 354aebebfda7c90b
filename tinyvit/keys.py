"""Random numbers that are a function of a key and of nothing else."""

import hashlib
from dataclasses import dataclass, field, replace
from math import pi, prod
from typing import Any

import numpy as np

from tinyvit.arrays import array_module

MASK64 = (1 << 64) - 1
GOLDEN_GAMMA = 0x9E3779B97F4A7C15  # 2^64 divided by the golden ratio, made odd


@dataclass(frozen=True)
class Key:
    """A random stream: the same key gives the same numbers, in any order and on any number of threads.

    A key has no state: the number for entry e of sample s is a hash of (seed, step, path, s, e). So a mask doesn't
    depend on how a batch was split, and a recomputed block draws the same one again.

    seed    of the whole run
    step    of the optimizer; None: `train_step` says which, and elsewhere it is 0
    path    of the layer that draws, as in `blocks.3.mlp.drop1`
    sample  global index of the first sample of the batch
    on_gpu  where the numbers of a step lie on a GPU, if the step is replayed: a `cuda_graph.StreamStarts`
    """

    seed: int
    step: int | None = None
    path: str = ""
    sample: int = 0
    on_gpu: Any = field(default=None, compare=False, repr=False)

    def at(self, path):
        """The stream of another layer."""
        return replace(self, path=path)

    def skip(self, samples):
        """The stream of a batch that starts `samples` later."""
        return replace(self, sample=self.sample + samples)

    def bits(self):
        """128 bits that depend on everything in the key except the sample."""
        name = repr((int(self.seed), int(self.step or 0), self.path)).encode()
        return int.from_bytes(hashlib.blake2b(name, digest_size=16).digest(), "little")

    def first(self):
        """64 bits from which the streams of the first sample and of those after it start."""
        return self.bits() + self.sample * GOLDEN_GAMMA & MASK64

    def start(self):
        """`first` as np.uint64; of a step that is replayed an array () on the GPU, which holds that of the last one."""
        return np.uint64(self.first()) if self.on_gpu is None else self.on_gpu.start(self)

    def generator(self):
        """A NumPy Generator for draws on the CPU: initial weights, the order of an epoch."""
        return np.random.Generator(np.random.Philox(key=self.bits()))

    def uniform(self, shape, xp=np):
        """Numbers in [0, 1), float32, shape (B, ...): a row per sample, each row a stream of its own.

        SplitMix64 run as a counter (Steele, Lea & Flood 2014, "Fast splittable pseudorandom number
        generators"): the 64 bits for a pair of entries e of the stream that starts at s are mix(s + e·γ), and the
        streams start at mix(key + sample·γ). Exact integer arithmetic, so NumPy and CuPy give the same bits.
        """
        rows, entries = shape[0], prod(shape[1:])
        starts = _mix64(self.start() + xp.arange(rows, dtype="uint64") * xp.uint64(GOLDEN_GAMMA))
        counters = xp.arange(1, entries // 2 + 2, dtype="uint64") * xp.uint64(GOLDEN_GAMMA)
        halves = _mix64(starts[:, None] + counters).view("uint32")[:, :entries]  # two numbers from each 64 bits
        # The upper 24 bits fill a float32's mantissa exactly.
        return ((halves >> xp.uint32(8)).astype("float32") * 2.0**-24).reshape(shape)

    def normal(self, shape, xp=np, dtype="float32"):
        """Numbers from N(0, 1), of shape (B, ...): a row per sample, as of `uniform`, two of whose numbers make one.

        √(−2 log(1 − u)) cos(2π v), in float64 whatever the dtype. Box & Muller 1958, "A note on the generation of
        random normal deviates".
        """
        pairs = self.uniform((shape[0], prod(shape[1:]), 2), xp).astype("float64")
        return ((-2 * xp.log(1 - pairs[..., 0])) ** 0.5 * xp.cos(2 * pi * pairs[..., 1])).astype(dtype).reshape(shape)


def _mix64(z):
    """SplitMix64's finaliser: every bit of the result depends on every bit of z (uint64, wraps around)."""
    uint64 = array_module(z).uint64
    z = (z ^ (z >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> uint64(27))) * uint64(0x94D049BB133111EB)
    return z ^ (z >> uint64(31))
