"""Training steps as CUDA graphs: a step's launches are captured once and then started together, in microseconds.

A graph computes on the arrays that it was captured with, so the batch and the numbers that random streams start from
are copied there before each launch.
"""

from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tinyvit.backend import library, to_device
from tinyvit.kernels.cuda.cublas import Handle

MOST = 1 << 14  # random streams of a step


class Keys:
    """The random streams that a step draws from; the numbers that they start from lie in one array on the GPU.

    known   whether the step has run once, so that all of its streams are known
    """

    def __init__(self, device, step):
        self.device, self.step, self.known = device, step, False
        self.numbers, self.places = library(device).zeros(MOST, "uint64"), {}  # key without a step -> place

    def start(self, key):
        """What `Key.start` returns: an array () that holds the number of the step that `move_to` named last."""
        if key.step != self.step:
            raise ValueError(f"a step that is captured draws from streams of its own step {self.step}, got {key}")
        stream = replace(key, step=None)
        if stream not in self.places:
            if self.known or len(self.places) == MOST:
                raise ValueError(
                    f"a step that is captured draws from the same streams each time, and from at most {MOST:,}; "
                    f"{key} is new"
                )
            place = self.places[stream] = len(self.places)
            self.numbers[place] = np.uint64(key.first())
        return self.numbers[self.places[stream]]

    def move_to(self, step):
        """Upload the numbers of another step."""
        self.step = step
        if self.places:
            first = np.array([replace(stream, step=step).first() for stream in self.places], "uint64")
            self.numbers[: len(first)] = to_device(first, self.device)


class Captured(NamedTuple):
    """A step: the arrays that it reads, and once it is captured its graph and what that computes."""

    batch: dict
    keys: Keys | None
    graph: Any = None
    result: Any = None


class StepGraphs:
    """Runs functions of a batch on a GPU, and replays them: from the second time on, a function isn't called again.

    Everything that is computed lies in a memory pool of its own, which nothing else takes memory from.

    Raises ValueError for the CPU, which has no CUDA graphs.
    """

    def __init__(self, device):
        if device == "cpu":
            raise ValueError("a CUDA graph needs a GPU, and this is the CPU")
        self.cupy, self.device, self.steps = library(device), device, {}
        self.stream, self.pool = self.cupy.cuda.Stream(non_blocking=True), self.cupy.cuda.MemoryPool()
        self.handle = Handle(self.cupy, self.stream)

    def run(self, kind, function, batch, ctx):
        """function(batch, ctx), a NamedTuple of arrays whose content the next run overwrites.

        kind    whatever else the launches depend on, hashable; shapes and dtypes of the batch are told apart here
        batch   arrays by name. The function does with any of the same kind what it does with this one, and draws
                random numbers by the key of `ctx` alone

        Raises ValueError for a function that can't be captured.
        """
        kind = kind, *((name, array.shape, array.dtype.str) for name, array in batch.items())
        step, here = self.steps.get(kind), self.cupy.cuda.get_current_stream()
        if step is None:  # the first time: compiles kernels, fills caches, and finds the streams
            step = Captured({name: array.copy() for name, array in batch.items()}, keys_of(ctx, self.device))
            with self.recording():
                self.stream.wait_event(here.record())
                result = function(step.batch, context_with(ctx, step.keys))
            here.wait_event(self.stream.record())
            if step.keys is not None:
                step.keys.known = True
            self.steps[kind] = step
            return result
        for name, array in batch.items():
            step.batch[name][...] = array
        if step.keys is not None:
            step.keys.move_to(ctx.key.step)
        if step.graph is None:
            step = self.steps[kind] = self.captured(step, function, context_with(ctx, step.keys))
        step.graph.launch()
        return step.result

    def captured(self, step, function, ctx):
        """The step with its graph."""
        with self.recording():
            self.stream.begin_capture()
            try:
                result = function(step.batch, ctx)
            except NotImplementedError as error:  # of CuPy, for what it doesn't launch while a stream is captured
                raise ValueError(f"this step can't be captured as a CUDA graph: {error}") from error
            finally:
                graph = self.stream.end_capture()
        return step._replace(graph=graph, result=result)

    @contextmanager
    def recording(self):
        """Inside this, kernels go to the stream that is captured, and arrays are made in the graphs' own memory."""
        with self.cupy.cuda.using_allocator(self.pool.malloc), self.stream:
            yield


def keys_of(ctx, device):
    return None if ctx is None or ctx.key is None else Keys(device, ctx.key.step)


def context_with(ctx, keys):
    """The context with random streams that start where `keys` says."""
    return ctx if keys is None else replace(ctx, key=replace(ctx.key, kept=keys))
