"""How much memory a training step needs, and which batch would fit where there is less.

The loss and its backward run on a few samples, and a batch takes as much for each of its own. So nothing is known here
of architectures, tasks and kernels.
"""

import traceback
import tracemalloc
from typing import NamedTuple

import numpy as np

from tinyvit.backend import peak_of_pool
from tinyvit.models import build
from tinyvit.nn.context import Context, as_one_of_two
from tinyvit.nn.precision import MASTER
from tinyvit.training.meeting import mixes_samples
from tinyvit.training.memory import available_memory
from tinyvit.training.threads import at_once, map_threads

SURE = 0.75  # share of the estimate for a batch that is needed for certain
MARGIN = 0.9  # share of the free memory that a batch that is advised may fill
SPARE = 100_000_000  # bytes, at most half of all, that it leaves: for threads' stacks, buffers of BLAS, later imports
SAVING = 3  # copies of what a checkpoint holds while it is saved: the arrays, their bytes, the file
LOADED = 4  # batches on a CPU: the current one, and those that the loader has prepared or is preparing
MEASURED = 16_000_000  # bytes, about, of the samples that are measured: of fewer, a kernel's own arrays would hide them
OF_CUDA = ("cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY", "CUBLAS_STATUS_ALLOC_FAILED")


class OutOfMemory(MemoryError):
    """Too little memory, with a message that says how much was needed and which batch would fit."""


class Needs(NamedTuple):
    """The memory of a training, in bytes.

    held     what is there all the time: weights, gradients, moments; on a GPU also the data
    sample   what forward, backward and the inputs take for each sample of a batch
    between  what saving takes, between two steps
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
        total, there = self.total(batch_size), "can be had" if self.device == "cpu" else f"are free on {self.device}"
        text = (
            f"too little memory: a step on {batch_size} images needs about {readable(total)} ({readable(self.held)} of "
            f"it for weights, gradients and moments)" + ("" if free is None else f", and {readable(free)} {there}")
        )
        # Where memory has run out, what needs as much doesn't fit, whatever there seems to be.
        free = min(total if free is None else free, total)
        room = int(MARGIN * max(free - SPARE, free / 2)) - self.held
        fits = min(batch_size - 1, int(room // max(1, self.sample)))
        if fits < 1 or room < self.between:
            return f"{text}; not even one image fits: take a smaller model"
        return f"{text}; --batch-size {fits} would fit; --recompute and --optim.accumulate take less, too"


def needs_of_weights(config, device):
    """The least `Needs` of a training, known before anything is made: of weights, gradients and one moment."""
    numbers = build(config.model, device="meta").num_parameters()
    return Needs(3 * numbers * np.dtype(MASTER[config.precision]).itemsize, device=device)


def needs_of_step(model, optimizer, loss_of, batch, ctx, threads=1, accumulate=1, kept=0, split=None):
    """The `Needs` of a model and an optimizer.

    loss_of     (named arrays, ctx) -> (loss, backward, …)
    batch       named arrays, of which a few samples are measured
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
        inputs, between = LOADED * inputs, SAVING * held
    together, accumulate = (threads, 1) if mixes_samples(model, ctx) else (at_once(threads), accumulate)
    each = measured(model, loss_of, batch, ctx)
    return Needs(held + size * threads, together / threads / accumulate * each + inputs, between, device)


def measured(model, loss_of, batch, ctx):
    """Bytes that forward and backward take for each sample.

    Nothing changes but the model's gradients, which are zero afterwards.
    """
    storage, device = model.storage, model.device
    (buffer,) = storage.grads.take(1)

    def run(samples):
        arrays = {name: array[:samples] for name, array in batch.items()}
        with storage.compute_scope(), storage.grads.into(buffer, model.image_layer), np.errstate(all="ignore"):
            loss_of(arrays, as_one_of_two(ctx or Context()))[1](1.0)

    def peak(samples):
        return max(1, peak_of(lambda: map_threads(run, [samples], 1, device), device))

    run(1)  # imports and tables don't count
    few = max(1, min(len(next(iter(batch.values()))), 2 * MEASURED // peak(1)))
    each = peak(few) / few
    buffer[:] = 0
    return each


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
    if free is not None and needs.held + SURE * (needs.total(batch_size) - needs.held) > free:
        raise OutOfMemory(needs.message(batch_size, free))


def raise_if_out_of_memory(error, batch_size, needs):
    """Raise OutOfMemory if an error says that memory ran out in a training that has these `Needs`."""
    if not is_lack_of_memory(error):
        return
    # Its tracebacks hold the caches. It isn't enough to clear their frames: each keeps its function, such as a
    # backward, whose closure keeps them, too.
    one = error
    while one is not None:
        traceback.clear_frames(one.__traceback__)
        one.__traceback__ = None
        one = one.__cause__ or one.__context__
    free = available_memory(needs.device)
    # Both the needed and the free memory include what the model already holds.
    raise OutOfMemory(needs.message(batch_size, None if free is None else free + needs.held)) from error


def is_lack_of_memory(error):
    """Whether an error says that there is too little memory: NumPy's and CuPy's are MemoryErrors, those of CUDA not."""
    return isinstance(error, MemoryError) or any(code in str(error) for code in OF_CUDA)


def readable(count):
    """A number of bytes as text, in MB or GB."""
    if count >= 10**18:  # more digits than anybody reads
        return "a billion GB or more"
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB"
