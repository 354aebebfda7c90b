"""How much memory a training step needs, measured on a few samples, and what to do where there is less.

The loss and its backward run on a few samples and on twice as many. What the second takes more is for each sample, the
rest is fixed. So nothing is known here of architectures, tasks and kernels.
"""

import traceback
import tracemalloc
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from math import ceil
from typing import NamedTuple

import numpy as np

from tinyvit.backend import peak_of_pool
from tinyvit.models import build
from tinyvit.models.architecture import Architecture
from tinyvit.models.summary import activation_bytes, widest_output
from tinyvit.nn.precision import MASTER
from tinyvit.optim import SGD, Adagrad, Adam, AdamW, Muon
from tinyvit.training.available import available_memory
from tinyvit.training.threads import at_once, map_threads

SURE = 0.75  # share of what the samples were measured to take that is needed for certain
MARGIN = 0.9  # share of the free memory that a step that is advised may fill
SPARE = 100_000_000  # bytes, at most half of all, that it leaves: for threads' stacks, buffers of BLAS, later imports
SAVING = 3  # copies of what a checkpoint holds while it is saved: the arrays, their bytes, the file
AHEAD = 3  # batches that the loader has prepared, or is preparing, besides the one at hand
NUMBER = {"float32": 4, "float64": 8}  # bytes
OPTIMIZERS = {"adamw": AdamW, "adam": Adam, "sgd": SGD, "adagrad": Adagrad, "muon": Muon}
OF_CUDA = ("cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY", "CUBLAS_STATUS_ALLOC_FAILED")
INFERENCE = 1 << 29  # bytes that the forward of an evaluation may take, as far as its batch decides it
FORWARD = 3.5  # arrays as large as the largest output that it holds at once
TELLING = 32_000_000  # bytes of which a measurement should tell: below it more samples are taken
MOST = 16  # samples that are measured
PLENTY = 50  # times what a forward keeps: no step takes so much


class OutOfMemory(MemoryError):
    """Too little memory, with a message that says how much was needed and what would do with less."""


class Needs(NamedTuple):
    """Bytes by what they are for."""

    weights: int      # parameters, gradients of each part of the batch, moments, average
    batches: int      # that at hand, those prepared ahead, and on a GPU the data set
    samples: int      # what forward and backward hold, of the parts that are computed at once
    saving: int       # copies of what a checkpoint holds; on a GPU of what a step that is left out leaves as it was
    evaluation: int   # on a GPU, the images that the model is judged by

    @property
    def total(self):
        """About what the process grows by. Saving and evaluating come between two steps."""
        return self.weights + self.batches + max(self.samples, self.saving, self.evaluation)

    @property
    def least(self):
        """What can't be done without."""
        return self.weights + round(SURE * self.samples)


@dataclass(frozen=True)
class Step:
    """What decides how much memory a step of training takes.

    model       bytes of an array as large as the model
    sample      bytes of a sample's images and whatever else a batch holds of it
    measured    recompute -> (bytes for each forward and backward, bytes for each of its samples); None where even
                the few samples that are measured ran out of memory
    threads     parts of the batch, of which as many as there are cores run at once
    slots       arrays as large as the model that the optimizer keeps
    average     whether a moving average is kept
    ahead       batches besides the one at hand
    saved       whether checkpoints are saved
    device      "cpu", or a GPU, which has memory of its own
    rounded     bytes of the matrices in fewer bits, if there are any
    data        bytes of the training set, if it is on a GPU
    test_data   bytes of the set that the model is evaluated on, likewise
    copies      whether a step on a GPU keeps copies of what the optimizer changes, for the case that it is left out
    """

    model: int
    batch_size: int
    sample: int = 0
    measured: Callable | None = None
    threads: int = 1
    accumulate: int = 1
    recompute: bool = False
    slots: int = 2
    average: bool = False
    ahead: int = 0
    saved: bool = False
    device: str = "cpu"
    rounded: int = 0
    data: int = 0
    test_data: int = 0
    copies: bool = False

    def needs(self):
        """The `Needs` of this step; without a measurement those of the weights."""
        parts = min(self.threads, self.batch_size)
        piece = ceil(ceil(self.batch_size / parts) / self.accumulate)  # samples in one forward
        state = 1 + self.slots + self.average
        found = self.measured and self.measured(self.recompute)
        fixed, each = found or (0, 0)
        if self.device != "cpu":  # what a step changes, or what is saved of it
            saving = self.model * max((1 + self.slots) * self.copies, self.saved)
        else:
            saving = SAVING * self.model * state if self.saved else 0
        return Needs(
            weights=self.model * (state + parts) + self.rounded,
            batches=self.sample * self.batch_size * (1 + self.ahead) + self.data,
            samples=round(min(at_once(self.threads), parts) * (fixed + piece * each)),
            saving=saving,
            evaluation=self.test_data,
        )

    def fits(self, free):
        """Whether it is likely to need no more than `free` bytes."""
        return self.needs().total <= free

    def that_fit(self, free, words):
        """The changes to this step that would make it fit, each in its words."""
        found = []
        if self.measured is None or self.measured(self.recompute) is None:
            return found
        batch_size = largest(lambda count: replace(self, batch_size=count).fits(free), self.batch_size - 1)
        if batch_size:
            found.append(words.batch_size.format(batch_size))
        if not self.recompute and self.measured(True) is not None:
            again = replace(self, recompute=True)
            most = largest(lambda count: replace(again, batch_size=count).fits(free), self.batch_size)
            if most == self.batch_size:
                found.append(words.recompute)
            elif most > batch_size:
                found.append(f"{words.batch_size.format(most)} with {words.recompute}")
        pieces = ceil(self.batch_size / min(self.threads, self.batch_size))
        fewest = 1 + pieces - largest(lambda count: replace(self, accumulate=1 + pieces - count).fits(free), pieces)
        if self.accumulate < fewest <= pieces:
            found.append(words.accumulate.format(fewest))
        return found

    def message(self, free, words):
        """What is needed, what there is (`free`, or None), and what would fit."""
        needs = self.needs()
        rest = needs.total - needs.samples - needs.weights
        where = "can be had" if self.device == "cpu" else f"are free on {self.device}"
        there = "how much there is, is unknown" if free is None else f"{readable(free)} {where}"
        text = (
            f"too little memory: a step on {self.batch_size} images needs about {readable(needs.total)} "
            f"({readable(needs.samples)} for activations, {readable(needs.weights)} for weights, gradients and "
            f"moments, {readable(max(0, rest))} for all else), and {there}"
        )
        # Where memory has run out, what needs as much doesn't fit, whatever there seems to be.
        free = min(needs.total if free is None else free, needs.total)
        found = self.that_fit(MARGIN * max(free - SPARE, free / 2), words)
        if not found:
            return f"{text}; nor does a single image at a time fit: take a smaller model"
        return f"{text}; {', '.join(found[:-1])}{' or ' if len(found) > 1 else ''}{found[-1]} would fit"


class Words(NamedTuple):
    """How the changes to a step are asked for."""

    batch_size: str
    recompute: str
    accumulate: str


OPTIONS = Words("--batch-size {}", "--recompute", "--optim.accumulate {}")
ARGUMENTS = Words("a batch of {}", "Context(recompute=True)", "accumulate={}")


def require_weights(config, threads, free):
    """Raise OutOfMemory where not even weights, gradients and moments of a training fit, before any is allocated."""
    o = config.optim
    model = NUMBER[MASTER[config.precision]] * build(config.model, device="meta").num_parameters()
    step = Step(model, config.batch_size, threads=threads, slots=len(OPTIMIZERS[o.name].slots), average=bool(o.ema))
    require_memory(step, free)


def step_of(config, model, optimizer, threads, measured, sample, split=()):
    """The `Step` of a training with this TrainConfig; on a GPU with a `Split` whose arrays it has to hold."""
    gpu = model.device != "cpu"
    train, test = (part.images.nbytes + part.labels.nbytes for part in split) if gpu else (0, 0)
    step = step_at_hand(model, optimizer, config.batch_size, threads, config.optim.accumulate, measured, sample)
    return replace(
        step, recompute=config.recompute, average=config.optim.ema is not None, ahead=0 if gpu else AHEAD, saved=True,
        data=train, test_data=test,
    )  # fmt: skip


def step_at_hand(model, optimizer, samples, threads, accumulate, measured, sample):
    """The `Step` of a model and an optimizer that are there already, on so many samples."""
    storage = model.storage
    return Step(
        storage.data.nbytes, samples, sample, measured, 1 if storage.device != "cpu" else threads, accumulate,
        slots=len(optimizer.slots), device=storage.device, copies=not optimizer.decides,
        rounded=storage.compute_dtype.itemsize * storage.size if storage.precision.is_low else 0,
    )  # fmt: skip


def measurement(model, loss_of, most):
    """A function `measured` for a `Step`: recompute -> (bytes that are fixed, bytes for each sample), or None.

    loss_of   (samples, recompute) -> (loss, backward, …), as an objective gives it
    most      samples in one forward

    Nothing changes but the model's gradients, which are zero afterwards.
    """
    storage = model.storage

    def run(samples, recompute):
        with storage.compute_scope(), storage.grads.into(buffer), np.errstate(all="ignore"):
            loss_of(samples, recompute)[1](1.0)

    def peak(samples, recompute):
        return peak_of(lambda: map_threads(lambda n: run(n, recompute), [samples], 1, model.device), model.device)

    @cache
    def measured(recompute):
        try:
            run(1, recompute)  # imports and tables don't count
            few = max(1, min(most // 2, MOST // 2, TELLING // max(1, peak(1, recompute))))
            first, second = peak(few, recompute), peak(2 * few, recompute)
        except Exception as error:
            if not is_lack_of_memory(error):
                raise
            traceback.clear_frames(error.__traceback__)
            return None
        finally:
            buffer[:] = 0
        each = max(1, (second - first) / few)
        return max(0, first - few * each), each

    (buffer,) = storage.grads.take(1)
    return measured


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
    return replace(step, measured=lambda recompute: (0, kept)).fits(free)


def require_memory(step, free):
    """Raise OutOfMemory if a step surely doesn't fit into `free` bytes (None: unknown); warn if it hardly does."""
    if free is None or step.needs().total <= free:
        return
    message = step.message(free, OPTIONS)
    if step.needs().least > free or (step.measured and step.measured(step.recompute) is None):
        raise OutOfMemory(message)
    warnings.warn(f"there may be {message}", stacklevel=2)


def explained(step, words, error):
    """The OutOfMemory for a lack of memory that a step has met, once what it held is freed."""
    traceback.clear_frames(error.__traceback__)
    free = available_memory(step.device)
    # What the model holds already is counted in what is needed, and so in what there is.
    return OutOfMemory(step.message(None if free is None else free + step.needs().weights + step.data, words))


def is_lack_of_memory(error):
    """Whether an error says that there is too little memory: NumPy's and CuPy's are MemoryErrors, those of CUDA not."""
    return isinstance(error, MemoryError) or any(code in str(error) for code in OF_CUDA)


def forward_bytes(model, bytes_per_number=4):
    """Bytes that the forward of an image takes, about, where nothing is kept for a backward."""
    return round(FORWARD * bytes_per_number * widest_output(model))


def evaluation_batch(model, most=256):
    """Images that are evaluated at a time: a power of two that depends on the model's shape and on nothing else, so
    that a loss has the same digits on every machine, and takes no more memory than training on a few images does."""
    if not isinstance(model, Architecture):
        return most
    image = forward_bytes(model)
    return 1 << largest(lambda power: image << power <= INFERENCE, most.bit_length() - 1)


@contextmanager
def memory_to_evaluate(model, most=256):
    """Raise OutOfMemory if a model surely can't be evaluated with the memory that there is, or where that turns out."""
    if not isinstance(model, Architecture):
        yield
        return
    images, device = evaluation_batch(model, most), model.device
    needed = images * forward_bytes(model, model.storage.compute_dtype.itemsize)
    free, where = available_memory(device), "can be had" if device == "cpu" else f"are free on {device}"
    message = (
        f"too little memory: to evaluate {images} images at a time takes about {readable(needed)}, and "
        f"{'how much there is, is unknown' if free is None else f'{readable(free)} {where}'}; "
        f"end other programs, or {'raise the limit' if device == 'cpu' else 'take --device cpu'}"
    )
    if free is not None and needed / 2 > free:
        raise OutOfMemory(message)
    try:
        yield
    except Exception as error:
        if not is_lack_of_memory(error):
            raise
        raise OutOfMemory(message) from error


def largest(holds, most):
    """The largest count from 1 to `most` for which `holds(count)`, if it holds for all smaller ones; else 0."""
    low, high = 0, max(0, most)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def readable(count):
    """Bytes as a person says them."""
    if count >= 10**18:  # more digits than anybody reads
        return "a billion GB or more"
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB"
