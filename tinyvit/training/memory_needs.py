"""How much memory a training step needs, measured on a few samples, and what to do where there is less.

The loss and its backward run on a few samples and on twice as many. What the second takes more is for each sample, the
rest is fixed. So nothing is known here of architectures, tasks and kernels.
"""

import traceback
import tracemalloc
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from math import ceil

import numpy as np

from tinyvit.backend import peak_of_pool
from tinyvit.models import build
from tinyvit.models.architecture import Architecture
from tinyvit.models.summary import activation_bytes
from tinyvit.nn.context import Context, as_one_of_two
from tinyvit.nn.precision import MASTER
from tinyvit.optim import SGD, Adagrad, Adam, AdamW, Muon
from tinyvit.training.meeting import mixes_samples
from tinyvit.training.memory import available_memory
from tinyvit.training.threads import at_once, map_threads

SURE = 0.75  # share of what the samples were measured to take that is needed for certain
MARGIN = 0.9  # share of the free memory that a step that is advised may fill
SPARE = 100_000_000  # bytes, at most half of all, that it leaves: for threads' stacks, buffers of BLAS, later imports
SAVING = 3  # copies of what a checkpoint holds while it is saved: the arrays, their bytes, the file
AHEAD = 3  # batches that the loader has prepared, or is preparing, besides the current one
NUMBER = {"float32": 4, "float64": 8}  # bytes
OPTIMIZERS = {"adamw": AdamW, "adam": Adam, "sgd": SGD, "adagrad": Adagrad, "muon": Muon}
OF_CUDA = ("cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY", "CUBLAS_STATUS_ALLOC_FAILED")
TELLING = 32_000_000  # bytes of which a measurement should tell: below it more samples are taken
PARAMETERS = 16  # or so many times the largest parameter, of which a backward makes a few arrays for any batch
MOST = 16, 256  # samples that are measured, of large images and of small ones
PLENTY = 50  # times what a forward keeps: no step takes so much


class OutOfMemory(MemoryError):
    """Too little memory, with a message that says how much was needed and what would do with less."""


# How the changes to a step are asked for: a smaller batch, recomputation, accumulation.
OPTIONS = "--batch-size {}", "--recompute", "--optim.accumulate {}"
ARGUMENTS = "a batch of {}", "Context(recompute=True)", "accumulate={}"


@dataclass(frozen=True)
class Step:
    """How much memory a step of training takes, in bytes.

    fixed      weights, moments and average; on a GPU also the data set, and the matrices in fewer bits
    gradients  of the model; each part of the batch has its own
    sample     the arrays of a sample, in the current batch and in those prepared ahead
    between    what saving and evaluating take, between two steps
    measured   as `measurement` returns it; None if only what is `held` counts
    threads    parts of the batch; as many as there are cores run at once
    together   whether all parts are computed at the same time, as batch norm asks for: accumulation saves nothing
    captured   whether the step is a CUDA graph, which keeps its memory between two steps, and a batch
    evaluating what the test images and a forward on many of them take on a GPU
    """

    fixed: int
    gradients: int
    batch_size: int
    sample: int = 0
    between: int = 0
    measured: Callable | None = None
    threads: int = 1
    accumulate: int = 1
    recompute: bool = False
    device: str = "cpu"
    together: bool = False
    captured: bool = False
    evaluating: int = 0

    @property
    def held(self):
        """Bytes that the model and the optimizer hold all the time."""
        return self.fixed + self.gradients * min(self.threads, self.batch_size)

    @property
    def activations(self):
        """Bytes that forward and backward hold, for the parts that are computed at the same time."""
        fixed, each = (self.measured and self.measured(self.recompute)) or (0, 0)
        parts = min(self.threads, self.batch_size)
        if self.together:
            return round(parts * (fixed + ceil(self.batch_size / parts) * each))
        samples = ceil(ceil(self.batch_size / parts) / self.accumulate)  # in one forward
        return round(min(at_once(self.threads), parts) * (fixed + samples * each))

    @property
    def total(self):
        """About what the process grows by."""
        batch = self.sample * self.batch_size
        between = max(self.between, self.evaluating)
        if self.captured:
            return self.held + 2 * batch + self.activations + between
        return self.held + batch + max(self.activations, between)

    @property
    def least(self):
        """Bytes that are certainly needed."""
        return self.held + round(SURE * self.activations)

    def advice(self, free, words):
        """The changes to this step that would make it fit into `free` bytes, each in its words."""
        batch_size, recompute, accumulate = words
        if self.measured is None or self.measured(self.recompute) is None:
            return []

        def fits(**changes):
            return replace(self, **changes).total <= free

        found = []
        fewer = largest(lambda count: fits(batch_size=count), self.batch_size - 1)
        if fewer:
            found.append(batch_size.format(fewer))
        if not self.recompute and self.measured(True) is not None:
            again = largest(lambda count: fits(batch_size=count, recompute=True), self.batch_size)
            if again == self.batch_size:
                found.append(recompute)
            elif again > fewer:
                found.append(f"{batch_size.format(again)} with {recompute}")
        samples = ceil(self.batch_size / min(self.threads, self.batch_size))
        parts = 1 + largest(lambda count: not fits(accumulate=count), samples)
        if self.accumulate < parts <= samples and not self.together:
            found.append(accumulate.format(parts))
        return found

    def message(self, free, words):
        """The error: how much is needed, how much is available (`free`, or None), and what would fit."""
        text = (
            f"too little memory: a step on {self.batch_size} images needs about {readable(self.total)} "
            f"({readable(self.activations)} for activations, {readable(self.held)} for weights, gradients and "
            f"moments, {readable(max(0, self.total - self.activations - self.held))} for all else), and "
            f"{what_there_is(free, self.device)}"
        )
        # Where memory has run out, what needs as much doesn't fit, whatever there seems to be.
        free = min(self.total if free is None else free, self.total)
        found = self.advice(MARGIN * max(free - SPARE, free / 2), words)
        if not found:
            return f"{text}; not even one image fits: take a smaller model"
        return f"{text}; {', '.join(found[:-1])}{' or ' if len(found) > 1 else ''}{found[-1]} would fit"


def require_weights(config, threads, free):
    """Raise OutOfMemory where not even weights, gradients and moments of a training fit, before any is allocated."""
    o = config.optim
    model = NUMBER[MASTER[config.precision]] * build(config.model, device="meta").num_parameters()
    arrays = 1 + len(OPTIMIZERS[o.name].slots) + (o.ema is not None)
    require_memory(Step(model * arrays, model, config.batch_size, threads=threads), free)


def step_of(
    model, optimizer, loss_of, batch, ctx, batch_size, threads=1, accumulate=1, average=False, split=None, state=0,
    captured=False, evaluation=0,
):  # fmt: skip
    """The `Step` of a model and an optimizer.

    loss_of     (named arrays, ctx) -> (loss, backward, …)
    batch       named arrays, with at least as many samples as are measured
    average     whether a moving average is kept
    split       the data of a training, which saves checkpoints, too
    state       bytes that the task keeps: of a teacher, say
    captured    whether the step is replayed as a CUDA graph
    evaluation  bytes that a forward of an evaluation takes on a GPU
    """
    storage, on_gpu = model.storage, model.device != "cpu"
    size, sample = storage.data.nbytes, sum(array[:1].nbytes for array in batch.values())
    changed = size * (1 + len(optimizer.slots))
    fixed, between, evaluating = changed + size * average + state, 0, 0
    if storage.precision.is_low:
        fixed += storage.compute_dtype.itemsize * storage.size
    if on_gpu:  # where the step may be left out, there are copies of what the optimizer changes, unless it decides
        between = size * optimizer.scratch + (0 if optimizer.decides else changed)
    if split is not None and on_gpu:
        train, test = (part.images.nbytes + part.labels.nbytes for part in split)
        fixed, between = fixed + train, max(between, size, test)
        evaluating = test + evaluation
    elif split is not None:
        sample, between = (1 + AHEAD) * sample, SAVING * fixed
    measured = measurement(model, loss_of, batch, ctx)
    threads, recompute = 1 if on_gpu else threads, ctx is not None and ctx.recompute
    return Step(
        fixed, size, batch_size, sample, between, measured, threads, accumulate, recompute, model.device,
        mixes_samples(model, ctx), captured, evaluating,
    )  # fmt: skip


def measurement(model, loss_of, batch, ctx=None):
    """A function `measured` for a `Step`: recompute -> (bytes that are fixed, bytes for each sample), or None where
    even a few samples ran out of memory.

    loss_of, batch   as for `step_of`

    Nothing changes but the model's gradients, which are zero afterwards.
    """
    storage, count = model.storage, len(next(iter(batch.values())))
    telling = max(TELLING, PARAMETERS * model.dtype.itemsize * max(parameter.size for parameter in model.parameters()))

    def run(samples, recompute):
        arrays = {name: array[:samples] for name, array in batch.items()}
        with storage.compute_scope(), storage.grads.into(buffer, model.image_layer), np.errstate(all="ignore"):
            loss_of(arrays, as_one_of_two(replace(ctx or Context(), recompute=recompute)))[1](1.0)

    def peak(samples, recompute):
        return peak_of(lambda: map_threads(lambda n: run(n, recompute), [samples], 1, model.device), model.device)

    @cache
    def measured(recompute):
        found, done = None, 0
        try:
            run(1, recompute)  # imports and tables don't count
            one = max(1, peak(1, recompute))
            for most in (MOST[0], count):
                few = max(1, min(most // 2, count // 2, telling // one))
                if few > done:
                    first, second, done = peak(few, recompute), peak(2 * few, recompute), few
                    each = max(1, (second - first) / few)
                    found = max(0, first - few * each), each
        except Exception as error:
            if not is_lack_of_memory(error):
                raise
            drop_tracebacks(error)
        finally:
            buffer[:] = 0
        return found  # of the larger measurement, if there was memory for it

    (buffer,) = storage.grads.take(1)
    return measured


def samples_to_measure(batch_size, image_bytes):
    """How many samples `step_of` should be given."""
    return max(2, min(batch_size, MOST[1], max(MOST[0], TELLING // image_bytes)))


def peak_of(function, device):
    """Bytes that the arrays that a function makes take at most."""
    if device != "cpu":
        return peak_of_pool(function, device)
    was_tracing = tracemalloc.is_tracing()
    if not was_tracing:
        tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        function()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        if not was_tracing:
            tracemalloc.stop()


def clearly_fits(step, model, free):
    """Whether a step fits into `free` bytes (None: unknown) with room to spare, so that nothing has to be measured.

    A task's own module around the model is always measured: it has no parts to estimate it from.
    """
    if free is None or not isinstance(model, Architecture):
        return False
    kept = PLENTY * activation_bytes(model, 1, bytes_per_number=NUMBER["float64"])
    return replace(step, measured=lambda recompute: (0, kept)).total <= free


def require_memory(step, free):
    """Raise OutOfMemory if a step surely doesn't fit into `free` bytes (None: unknown); warn if it hardly does."""
    if free is None or step.total <= free:
        return
    message = step.message(free, OPTIONS)
    if step.least > free or (step.measured and step.measured(step.recompute) is None):
        raise OutOfMemory(message)
    warnings.warn(f"there may be {message}", stacklevel=2)


def raise_if_out_of_memory(error, plan, words):
    """Raise the OutOfMemory of the `Step` that `plan()` returns, if an error says that memory ran out."""
    if not is_lack_of_memory(error):
        return
    drop_tracebacks(error)
    step = plan()
    free = available_memory(step.device)
    # Both the needed and the free memory include what the model already holds.
    raise OutOfMemory(step.message(None if free is None else free + step.held, words)) from error


def drop_tracebacks(error):
    """Free what the tracebacks of an error and of its causes hold. It isn't enough to clear their frames: each keeps
    its function, such as a backward, whose closure keeps the caches."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


def is_lack_of_memory(error):
    """Whether an error says that there is too little memory: NumPy's and CuPy's are MemoryErrors, those of CUDA not."""
    return isinstance(error, MemoryError) or any(code in str(error) for code in OF_CUDA)


def what_there_is(free, device):
    """The free memory of a device in words; None if it is unknown."""
    if free is None:
        return "how much there is, is unknown"
    return f"{readable(free)} {'can be had' if device == 'cpu' else f'are free on {device}'}"


def largest(holds, most):
    """The largest count from 1 to `most` for which `holds(count)`, if it holds for all smaller ones; else 0."""
    low, high = 0, max(0, most)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def readable(count):
    """A number of bytes as text, in MB or GB."""
    if count >= 10**18:  # more digits than anybody reads
        return "a billion GB or more"
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB"
