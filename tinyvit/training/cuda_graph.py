"""Training steps as CUDA graphs: a step's launches are captured once and then started together, in microseconds.

A graph computes on the arrays that it was captured with, so the batch and the numbers that random streams start from
are copied there before each launch.
"""

import gc
import weakref
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tinyvit.backend import library, to_device
from tinyvit.kernels.cuda.cublas import CublasError, Handle
from tinyvit.training.memory_needs import is_lack_of_memory
from tinyvit.training.step import CaptureError

MAX_STREAMS = 1 << 14  # random streams of a step


class StreamStarts:
    """The random streams that a step draws from; the numbers that they start from lie in one array on the GPU.

    complete   whether the step has run once, so that all of its streams are known
    """

    def __init__(self, device, step):
        self.device, self.step, self.complete = device, step, False
        self.values, self.index = library(device).zeros(MAX_STREAMS, "uint64"), {}  # key without a step -> index

    def start(self, key):
        """The start value of a stream, an array () on the GPU; `move_to` sets it for another step."""
        if key.step != self.step:
            raise CaptureError(f"a step that is captured draws from streams of its own step {self.step}, got {key}")
        stream = replace(key, step=None, on_gpu=None)
        if stream not in self.index:
            if self.complete or len(self.index) == MAX_STREAMS:
                raise CaptureError(f"a captured step draws from the same {MAX_STREAMS:,} streams at most; {key} is new")
            number = self.index[stream] = len(self.index)
            self.values[number] = np.uint64(key.first())
        return self.values[self.index[stream]]

    def move_to(self, step):
        """Upload the numbers of another step."""
        self.step = step
        if self.index:
            first = np.array([replace(stream, step=step).first() for stream in self.index], "uint64")
            self.values[: len(first)] = to_device(first, self.device)


class CapturedStep(NamedTuple):
    """A step: the arrays that it reads, and once it is captured its graph and what that computes."""

    batch: dict
    keys: StreamStarts | None
    graph: Any = None
    result: Any = None


def free(steps, pool):
    """Free graphs, and then the memory of their pool, which CuPy's pools don't do by themselves."""
    steps.clear()
    pool.free_all_blocks()


class StepGraphs:
    """Runs functions of a batch on a GPU and replays them: the first run of a kind is an ordinary one, the second
    captures a graph, and from the third on the function isn't called.

    All graphs compute in one memory pool, which nothing else uses, so only one may run at a time. Graphs of one kind
    are kept, one for each shape of the batch; with a run of another kind they and their memory are freed.
    """

    def __init__(self, device):
        self.cupy, self.device, self.kind, self.steps = library(device), device, None, {}
        self.stream = self.cupy.cuda.Stream(non_blocking=True)
        self.pool = self.cupy.cuda.MemoryPool(partial(allocate, self.cupy.cuda))
        self.pool.set_limit(size=0)  # at CUPY_GPU_MEMORY_LIMIT a pool would free blocks that graphs still use
        weakref.finalize(self, free, self.steps, self.pool).atexit = False
        self.handle = Handle(self.cupy, self.stream)

    def run(self, kind, function, batch, ctx):
        """function(batch, ctx): a tuple of arrays that the next run overwrites.

        kind    what the launches depend on besides the shapes and dtypes of the batch, hashable
        batch   arrays by name. The function does with any of the same kind what it does with this one, and draws
                random numbers by the key of `ctx` alone

        Raises CaptureError for a function that can't be captured; nothing was computed then.
        """
        if kind != self.kind:
            free(self.steps, self.pool)
            self.kind = kind
        layout = tuple((name, array.shape, array.dtype.str) for name, array in batch.items())
        step = self.steps.get(layout)
        if step is None:
            step, result = self.warm_up(function, batch, ctx)
            self.steps[layout] = step
            return result
        for name, array in batch.items():
            step.batch[name][...] = array
        if step.keys is not None:
            step.keys.move_to(ctx.key.step)
        if step.graph is None:
            step = self.steps[layout] = self.capture(step, function, ctx)
        step.graph.launch()
        return step.result

    def warm_up(self, function, batch, ctx):
        """(step, result) of an ordinary run: it compiles kernels, fills caches and finds the random streams."""
        keys = None if ctx is None or ctx.key is None else StreamStarts(self.device, ctx.key.step)
        step = CapturedStep({name: array.copy() for name, array in batch.items()}, keys)
        here = self.cupy.cuda.get_current_stream()
        with self.stream:  # in memory from the usual pool: what is cached must outlive the graphs
            self.stream.wait_event(here.record())
            result = function(step.batch, with_keys(ctx, keys))
        here.wait_event(self.stream.record())
        if keys is not None:
            keys.complete = True
        return step, result

    def capture(self, step, function, ctx):
        """The step with its graph, which hasn't run yet."""
        with self.recording():
            self.stream.begin_capture()
            try:
                result = function(step.batch, with_keys(ctx, step.keys))
                return step._replace(graph=self.stream.end_capture(), result=result)
            except BaseException as error:
                with suppress(Exception):  # CUDA has ended it, if that was the error
                    self.stream.end_capture()
                # cuBLAS's, and CuPy's of its own products and of uploads
                refused = isinstance(error, CublasError) or (isinstance(error, RuntimeError) and "captur" in str(error))
                if refused and not is_lack_of_memory(error):
                    raise CaptureError(f"this step can't be captured as a CUDA graph ({error})") from error
                raise

    @contextmanager
    def recording(self):
        """Inside this, kernels go to the stream that is captured, and arrays lie in the graphs' own memory.

        Garbage is collected before and not meanwhile: what it would free could end the capture.
        """
        gc.collect()
        self.cupy.get_default_memory_pool().free_all_blocks()
        collecting = gc.isenabled()
        gc.disable()
        try:
            with self.cupy.cuda.using_allocator(self.pool.malloc), self.stream:
                yield
        finally:
            if collecting:
                gc.enable()


def allocate(cuda, size):
    """Memory for a pool. Raises MemoryError instead of CUDA's error, which CuPy's pool would answer by freeing blocks
    that graphs still use."""
    try:
        return cuda.MemoryPointer(cuda.Memory(size), 0)
    except cuda.runtime.CUDARuntimeError as error:
        raise MemoryError(f"no memory for a CUDA graph: {error}") from error


def with_keys(ctx, keys):
    """The context with random streams that start where `keys` says."""
    return ctx if keys is None else replace(ctx, key=replace(ctx.key, on_gpu=keys))
