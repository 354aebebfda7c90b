"""How much memory a training step needs, from the shapes of its arrays, and what to do where there is less.

Measured peaks of a process (9 models from 1 to 12 blocks, batches of 4 to 256, 1 to 4 threads, each level of kernels)
are within 12 % of `Needs.total`. Less than `Needs.least` none of them took. On a GPU, where there is one thread and
nothing but the arrays counts, the same is tested by counting the bytes of a stand-in for CuPy.
"""

import traceback
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import ceil, prod
from typing import Any, NamedTuple

from tinyvit import levels
from tinyvit.functional.patches import as_pair
from tinyvit.models import ViT, build
from tinyvit.models.summary import activation_bytes, summarize
from tinyvit.nn.precision import MASTER
from tinyvit.nn.summary import kernels, on_gpu
from tinyvit.optim import SGD, Adagrad, Adam, AdamW, Muon
from tinyvit.training.available import available_memory
from tinyvit.training.freezing import frozen_parts
from tinyvit.training.threads import at_once

SURE = 0.75  # share of the activations that is needed for certain
MARGIN = 0.9  # share of the free memory that a step that is advised may fill
SPARE = 100_000_000  # bytes, at most half of all, that it leaves: for threads' stacks, buffers of BLAS, later imports
SAVING = 3  # copies of what a checkpoint holds while it is saved: the arrays, their bytes, the file
AHEAD = 3  # batches that the loader has prepared, or is preparing, besides the one at hand
NUMBER = {"float32": 4, "float64": 8}  # bytes
OPTIMIZERS = {"adamw": AdamW, "adam": Adam, "sgd": SGD, "adagrad": Adagrad, "muon": Muon}
OF_CUDA = ("cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY", "CUBLAS_STATUS_ALLOC_FAILED")
INFERENCE = 1 << 29  # bytes that the forward of an evaluation may take, as far as its batch decides it


class OutOfMemory(MemoryError):
    """Too little memory, with a message that says how much was needed and what would do with less."""


class Needs(NamedTuple):
    """Bytes by what they are for."""

    weights: int      # parameters, gradients of each part of the batch, moments, average
    batches: int      # that at hand, those prepared ahead, and on a GPU the data set
    activations: int  # what the forward keeps for the backward, of the parts that are computed at once
    workspace: int    # what the backward of the largest layer needs besides
    saving: int       # copies of what a checkpoint holds; on a GPU of what a step that is left out leaves as it was
    evaluation: int   # on a GPU, the images that the model is judged by

    @property
    def total(self):
        """About what the process grows by. Saving and evaluating come between two steps."""
        return self.weights + self.batches + max(self.activations + self.workspace, self.saving, self.evaluation)

    @property
    def least(self):
        """What can't be done without."""
        return self.weights + round(SURE * self.activations)


@dataclass(frozen=True)
class Step:
    """What decides how much memory a step of training takes.

    model       a ViT, with or without memory for its parameters
    threads     parts of the batch, of which as many as there are cores run at once
    slots       arrays as large as the model that the optimizer keeps
    average     whether a moving average is kept
    ahead       batches besides the one at hand
    saved       whether checkpoints are saved
    device      "cpu", or a GPU, which has memory of its own
    compute     bytes of a number in activations, if not those of the parameters
    frozen      how many of the model's first parts are left as they are, and keep nothing
    data        bytes of the training set, if it is on a GPU
    test_data   bytes of the set that the model is evaluated on, likewise
    copies      whether a step on a GPU keeps copies of what the optimizer changes, for the case that it is left out
    """

    model: Any
    batch_size: int
    threads: int = 1
    accumulate: int = 1
    recompute: bool = False
    bytes_per_number: int = 4
    slots: int = 2
    average: bool = False
    ahead: int = 0
    saved: bool = False
    device: str = "cpu"
    compute: int | None = None
    data: int = 0
    test_data: int = 0
    copies: bool = False
    frozen: int = 0

    def needs(self):
        """The `Needs` of this step."""
        with on_gpu(self.device != "cpu"):
            return self.needs_there()

    def needs_there(self):
        size, config, gpu = self.bytes_per_number, self.model.config, self.device != "cpu"
        compute = self.compute or size
        parts = min(self.threads, self.batch_size)
        piece = ceil(ceil(self.batch_size / parts) / self.accumulate)  # images in one forward
        running = min(at_once(self.threads), parts)
        model = size * self.model.num_parameters()
        kept = activation_bytes(self.model, piece, self.recompute, compute, self.frozen)
        kept += piece * masks(self.model, self.frozen)
        state = 1 + self.slots + self.average
        image = size * prod(image_shape(config))
        return Needs(
            weights=model * (state + parts) + (compute * self.model.num_parameters() if compute < size else 0),
            batches=image * self.batch_size * (1 + self.ahead) + self.data,
            activations=running * kept,
            workspace=running * piece * workspace_bytes(self.model, compute),
            saving=model * self.copied() if gpu else SAVING * model * state if self.saved else 0,
            evaluation=self.test_data,
        )

    def copied(self):
        """Arrays as large as the model that are copied on a GPU: what a step changes, or what is saved of them."""
        return max((1 + self.slots) * self.copies, self.saved)

    def fits(self, room):
        """Whether it is likely to need no more than `room` bytes."""
        return self.needs().total <= room

    def that_fit(self, room, words):
        """The changes to this step that would make it fit, each in its words."""
        found = []
        batch_size = largest(lambda count: replace(self, batch_size=count).fits(room), self.batch_size - 1)
        if batch_size:
            found.append(words.batch_size.format(batch_size))
        if not self.recompute:
            again = replace(self, recompute=True)
            most = largest(lambda count: replace(again, batch_size=count).fits(room), self.batch_size)
            if most == self.batch_size:
                found.append(words.recompute)
            elif most > batch_size:
                found.append(f"{words.batch_size.format(most)} with {words.recompute}")
        pieces = ceil(self.batch_size / min(self.threads, self.batch_size))
        fewest = 1 + pieces - largest(lambda count: replace(self, accumulate=1 + pieces - count).fits(room), pieces)
        if self.accumulate < fewest <= pieces:
            found.append(words.accumulate.format(fewest))
        return found

    def message(self, room, words):
        """What is needed, what there is (`room`, or None), and what would fit."""
        needs = self.needs()
        rest = needs.total - needs.activations - needs.weights
        where = "can be had" if self.device == "cpu" else f"are free on {self.device}"
        free = "how much there is, is unknown" if room is None else f"{readable(room)} {where}"
        text = (
            f"too little memory: a step on {self.batch_size} images needs about {readable(needs.total)} "
            f"({readable(needs.activations)} for activations, {readable(needs.weights)} for weights, gradients and "
            f"moments, {readable(rest)} for all else), and {free}"
        )
        # Where memory has run out, what needs as much doesn't fit, whatever there seems to be.
        room = min(needs.total if room is None else room, needs.total)
        found = self.that_fit(MARGIN * max(room - SPARE, room / 2), words)
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


def step_of(config, threads, device="cpu", split=()):
    """The `Step` of a training with this TrainConfig, so many threads, and a `Split` whose arrays a GPU has to hold."""
    o, gpu = config.optim, device != "cpu"
    train, test = (part.images.nbytes + part.labels.nbytes for part in split) if gpu else (0, 0)
    return Step(
        ViT(seen(config), device="meta"), config.batch_size, 1 if gpu else threads, o.accumulate, config.recompute,
        NUMBER[MASTER[config.precision]], len(OPTIMIZERS[o.name].slots), o.ema is not None, 0 if gpu else AHEAD, True,
        device=device, compute=2 if config.precision in ("bfloat16", "float16") else None,
        data=train, test_data=test, copies=not OPTIMIZERS[o.name].decides,
        frozen=frozen_parts(config.freeze, build(config.model, device="meta")) if o.keep_patches == 1 else 0,
    )  # fmt: skip


def step_at_hand(model, optimizer, images, threads, accumulate, recompute):
    """The `Step` of a ViT and an optimizer that are there already, on so many images."""
    storage = model.storage
    return Step(
        model, images, threads, accumulate, recompute, storage.dtype.itemsize, len(optimizer.slots),
        device=storage.device, compute=storage.compute_dtype.itemsize, copies=not optimizer.decides,
    )  # fmt: skip


def seen(config):
    """The model's shape for the largest images, or parts of images, that the steps of a training see."""
    model, o = config.model, config.optim
    if o.small_until and o.small_until[-1] == 1:
        model = replace(model, img_size=max(o.small_sizes))
    if o.keep_patches < 1 and o.keep_until == 1:
        height, width = as_pair(model.patch_size)
        model = replace(model, img_size=(height, width * max(1, round(o.keep_patches * prod(model.grid)))))
    return model


def require_room(step, room):
    """Raise OutOfMemory if a step surely doesn't fit into `room` (bytes; None: unknown); warn if it hardly does."""
    if room is None or step.needs().total <= room:
        return
    message = step.message(room, OPTIONS)
    if step.needs().least > room:
        raise OutOfMemory(message)
    warnings.warn(f"there may be {message}", stacklevel=2)


def explained(step, words, error):
    """The OutOfMemory for a lack of memory that a step has met, once what it held is let go."""
    traceback.clear_frames(error.__traceback__)
    room = available_memory(step.device)
    # What the model holds already is counted in what is needed, and so in what there is.
    return OutOfMemory(step.message(None if room is None else room + step.needs().weights + step.data, words))


def is_lack_of_memory(error):
    """Whether an error says that there is too little memory: NumPy's and CuPy's are MemoryErrors, those of CUDA not."""
    return isinstance(error, MemoryError) or any(code in str(error) for code in OF_CUDA)


def image_shape(config):
    """(channels, height, width) of the images that a ViT reads."""
    return config.in_chans, *as_pair(config.img_size)


def workspace_bytes(model, bytes_per_number=4):
    """Bytes for each image besides what is kept for the backward: a layer's inputs, outputs and their gradients.

    Found by measuring: those of eight arrays of tokens, and one and a half times what the layer that keeps most keeps.
    Attention counts for the plain text alone: kernels work through its scores in small pieces.
    """
    rows, c = summarize(model, 1), model.config
    tokens = (1 + prod(c.grid)) * c.embed_dim
    small = {"attention"} if levels.level() != "reference" else set()
    return bytes_per_number * round(8 * tokens + 1.5 * max(row.activations for row in rows if row.kind not in small))


def masks(model, frozen=0):
    """Bytes of the dropout masks of an image: one for each number that may be dropped; a GPU's kernels keep none, nor
    does any of the first `frozen` parts."""
    c = model.config
    if kernels() == "cuda":
        return 0
    tokens = 1 + prod(c.grid)
    dropped = (2 * c.embed_dim + c.mlp_hidden) * tokens if c.drop_rate else 0
    blocks = c.depth - min(c.depth, max(0, frozen - 1))  # the first part is the embedding
    return blocks * (dropped + (5 * c.num_heads * tokens**2 if c.attn_drop_rate else 0))  # and what is left of them


def evaluation_batch(model, most=256):
    """Images that are evaluated at a time: a power of two that depends on the model's shape and on nothing else, so
    that a loss has the same digits on every machine, and takes no more memory than training on a few images does."""
    if not isinstance(model, ViT):
        return most
    image = workspace_bytes(model)
    return 1 << largest(lambda power: image << power <= INFERENCE, most.bit_length() - 1)


@contextmanager
def room_to_evaluate(model, most=256):
    """Raise OutOfMemory if a ViT surely can't be evaluated with the memory that there is, or where that turns out."""
    if not isinstance(model, ViT):
        yield
        return
    images, device = evaluation_batch(model, most), model.device
    with on_gpu(device != "cpu"):
        needed = images * workspace_bytes(model, model.storage.compute_dtype.itemsize)
    room, where = available_memory(device), "can be had" if device == "cpu" else f"are free on {device}"
    message = (
        f"too little memory: to evaluate {images} images at a time takes about {readable(needed)}, and "
        f"{'how much there is, is unknown' if room is None else f'{readable(room)} {where}'}; "
        f"end other programs, or {'raise the limit' if device == 'cpu' else 'take --device cpu'}"
    )
    if room is not None and needed / 2 > room:  # a forward alone keeps nothing, and may do with less
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
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB"
