"""The memory that a training needs, and the batch that would fit where there is less.

The loss and its backward run on a few samples, and a batch takes as much for each of its own. So nothing is known here
of architectures, tasks and kernels.
"""

import traceback
import tracemalloc
from typing import NamedTuple

import numpy as np

from tinyvit.backend import peak_of_pool
from tinyvit.models import build
from tinyvit.models.summary import activation_bytes
from tinyvit.nn.precision import MASTER
from tinyvit.training.meeting import mixes_samples
from tinyvit.training.memory import available_memory
from tinyvit.training.threads import concurrent_threads, map_threads

MAX_SUMMARY_FACTOR = 20      # a step takes less than this many times the weights and activations of a summary
CERTAIN_FRACTION = 0.75      # of the estimate for a batch is needed in any case
MAX_FILLED_FRACTION = 0.9    # of the free memory, by the batch that an error names
SPARE_BYTES = 100_000_000    # that this batch leaves, at most half of all: for threads' stacks, BLAS, later imports
COPIES_WHILE_SAVING = 3      # of what a checkpoint holds: the arrays, their bytes, the file
LOADED_BATCHES = 4           # on a CPU: the current one, and those that the loader has prepared or is preparing
MEASURED_BYTES = 32_000_000  # of activations, about, in a measurement: fewer would drown in a kernel's own arrays
CUDA_ERRORS = ("cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY", "CUBLAS_STATUS_ALLOC_FAILED")


class OutOfMemory(MemoryError):
    """Too little memory, with a message that says how much was needed and which batch would fit."""


class Needs(NamedTuple):
    """The memory of a training, in bytes.

    held     all the time: weights, gradients, moments; on a GPU also the data
    sample   for each sample of a batch: forward, backward and the inputs
    between  while a checkpoint is saved, between two steps
    """

    held: int
    sample: float = 0
    between: int = 0
    device: str = "cpu"

    def total(self, batch_size):
        """Bytes of a training with batches of this size, about."""
        return self.held + max(self.between, round(self.sample * batch_size))

    def message(self, batch_size, free):
        """The error: how much is needed, how much is available (`free`, or None), and which batch would fit."""
        total, there = self.total(batch_size), "are available" if self.device == "cpu" else f"are free on {self.device}"
        text = (
            f"too little memory: a step on {batch_size} images needs about {format_bytes(total)} "
            f"({format_bytes(self.held)} of it for weights, gradients and moments)"
            + ("" if free is None else f", and {format_bytes(free)} {there}")
        )
        # Where a step ran out of memory, the estimate or the free memory is wrong: one that needs as much doesn't fit.
        free = min(total if free is None else free, total)
        room = int(MAX_FILLED_FRACTION * max(free - SPARE_BYTES, free / 2)) - self.held
        fits = min(batch_size - 1, int(room // max(1, self.sample)))
        if fits < 1 or room < self.between:
            return f"{text}; not even one image fits: take a smaller model"
        return f"{text}; --batch-size {fits} would fit; --recompute and --optim.accumulate take less, too"


def needs_of_weights(config, device):
    """The least `Needs` of a training, known before anything is made: of weights, gradients and one moment."""
    numbers = build(config.model, device="meta").num_parameters()
    return Needs(3 * numbers * np.dtype(MASTER[config.precision]).itemsize, device=device)


def is_ample(free, model, batch_size, threads):
    """Whether `free` bytes (None: unknown) are so many times what a summary counts that nothing must be measured."""
    activations = activation_bytes(model, batch_size, bytes_per_number=model.dtype.itemsize)
    return free is None or free > MAX_SUMMARY_FACTOR * (threads * model.storage.data.nbytes + activations)


def needs_of_step(model, optimizer, objective, batch, ctx, threads=1, accumulate=1, kept=0, split=None):
    """The `Needs` of a model and an optimizer.

    objective   (model, named arrays, ctx) -> (loss, backward, …)
    batch       named arrays: the samples that are measured
    kept        bytes besides: of a moving average, of the task
    split       the data of a training, which saves checkpoints, too
    """
    storage, device = model.storage, model.device
    size, inputs, between = storage.data.nbytes, sum(array[:1].nbytes for array in batch.values()), 0
    held = size * (1 + len(optimizer.slots)) + kept
    if storage.precision.is_low:
        held += storage.compute_dtype.itemsize * storage.size
    if device != "cpu":
        threads, held = 1, held + sum(part.images.nbytes + part.labels.nbytes for part in split or ())
    elif split is not None:
        inputs, between = LOADED_BATCHES * inputs, COPIES_WHILE_SAVING * held
    running, accumulate = (threads, 1) if mixes_samples(model, ctx) else (concurrent_threads(threads), accumulate)
    each = bytes_per_sample(model, objective, batch, ctx)
    return Needs(held + size * threads, running / threads / accumulate * each + inputs, between, device)


def bytes_per_sample(model, objective, batch, ctx):
    """Bytes that forward and backward take for each sample of a batch, which has at least two; measured.

    Nothing changes but the model's gradients, which are zero afterwards.
    """
    storage, device = model.storage, model.device
    (buffer,) = storage.grads.take(1)

    def run(batch):
        with storage.compute_scope(), storage.grads.into(buffer, model.image_layer), np.errstate(all="ignore"):
            objective(model, batch, ctx)[1](1.0)

    run(batch)  # imports and tables don't count
    peak = peak_of(lambda: map_threads(run, [batch], 1, device), device)
    buffer[:] = 0
    return peak / len(next(iter(batch.values())))


def peak_of(function, device):
    """Bytes that the arrays that a function makes take at most."""
    if device != "cpu":
        return peak_of_pool(function, device)
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def require_memory(needs, batch_size, free):
    """Raise OutOfMemory if a step surely doesn't fit into `free` bytes (None: unknown)."""
    if free is not None and needs.held + CERTAIN_FRACTION * (needs.total(batch_size) - needs.held) > free:
        raise OutOfMemory(needs.message(batch_size, free))


def raise_if_out_of_memory(error, batch_size, find_needs):
    """Raise OutOfMemory if an error says that memory ran out in a training whose `Needs` are `find_needs()`."""
    if not is_lack_of_memory(error):
        return
    # Its tracebacks hold the caches. It isn't enough to clear their frames: each keeps its function, such as a
    # backward, whose closure keeps them, too.
    one = error
    while one is not None:
        traceback.clear_frames(one.__traceback__)
        one.__traceback__ = None
        one = one.__cause__ or one.__context__
    needs = find_needs()
    free = available_memory(needs.device)
    # Both the needed and the free memory include what the model already holds.
    raise OutOfMemory(needs.message(batch_size, None if free is None else free + needs.held)) from error


def is_lack_of_memory(error):
    """Whether an error says that there is too little memory: NumPy's and CuPy's are MemoryErrors, those of CUDA not."""
    return isinstance(error, MemoryError) or any(code in str(error) for code in CUDA_ERRORS)


def format_bytes(count):
    """A number of bytes as text, in MB or GB."""
    if count >= 10**18:  # more digits than anybody reads
        return "a billion GB or more"
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB"
