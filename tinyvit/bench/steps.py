"""One step of a case, computed by tinyvit as in normal use. The level of the kernels is that of the process."""

import time
from functools import partial

import numpy as np

from tinyvit import functional as F
from tinyvit.backend import to_device
from tinyvit.functional.patches import as_pair
from tinyvit.keys import Key
from tinyvit.models import build
from tinyvit.nn import Context
from tinyvit.optim import AdamW
from tinyvit.training.cuda_graph import StepGraphs
from tinyvit.training.memory import freed_memory_kept
from tinyvit.training.step import train_step
from tinyvit.training.tasks.classification import classify
from tinyvit.training.threads import map_threads, slices

MATRIX_SIDES = (512, 1024)  # of matrices whose product every good library computes well
PRODUCT_SECONDS = 0.05       # for each of these in a turn


def load_libraries(threads):
    """Load numba or SciPy if the kernels need them; that should not count as memory of the work."""
    F.gelu(np.zeros(1, np.float32))


def prepare(case, precision, threads, name=None):
    """A function that computes the next step of a case and returns a number to compare implementations by.

    name   of the contestant, which only PyTorch's side needs
    """
    make = {"train": training_step, "infer": inference_step}.get(case.kind)
    return make(case, precision) if make else operation_step(case, precision, threads)


def training_step(case, precision, device="cpu", replayed=False):
    """A function that takes a training step as `train_step` does: loss, gradients, their norm, AdamW.

    It returns the loss, without waiting for a GPU. With `replayed` the step is a CUDA graph.
    """
    on_cpu = device == "cpu"
    options = {"dtype": precision} if on_cpu else {"device": device, "precision": precision}
    model = build(case.shape, seed=0, **options)
    optimizer = AdamW(model)
    images, targets = (to_device(array, device) for array in batch(case, precision if on_cpu else "float32"))
    with model.storage.on_device():
        replay = partial(StepGraphs(device).run, case.title) if replayed else None

    def step():
        ctx = Context(training=True, key=Key(seed=0, step=optimizer.t if on_cpu else 0))
        return train_step(model, optimizer, images, targets, ctx, replay=replay).loss

    return step


def inference_step(case, precision):
    """The logits of a batch. Returns the largest."""
    model = build(case.shape, seed=0, dtype=precision)
    images, _ = batch(case, precision)
    return lambda: classify(model, images).max()


def operation_step(case, precision, threads):
    """Attention or a convolution and its backward, the batch split over threads as a training step splits it.

    Returns the largest gradient of what samples share or, without such a thing, of the first sample's queries.
    """
    own, shared, dy = arrays(case, precision)
    forward, backward = F.attention, F.attention_backward
    if case.kind == "conv":
        s, backward = case.shape, F.conv2d_backward
        forward = partial(F.conv2d, stride=s.stride, padding=s.kernel_size // 2, groups=s.groups)

    def run(part):
        _, cache = forward(*(x[part] for x in own), *shared)
        return backward(dy[part], cache)

    def step():
        with freed_memory_kept():
            gradients = map_threads(run, slices(case.batch_size, threads), threads)
        return abs(sum(each[-1] for each in gradients) if shared else gradients[0][0][0]).max()

    return step


def batch(case, precision):
    """Images (B, C, H, W) from N(0, 1) and labels (B,), the same for all contestants."""
    generator, c = np.random.default_rng(0), case.shape
    images = generator.standard_normal((case.batch_size, c.in_chans, *as_pair(c.img_size)), dtype=precision)
    return images, generator.integers(0, c.num_classes, case.batch_size)


def arrays(case, precision):
    """Inputs of an operation: arrays with a row per sample, those that samples share, and the gradient of its result.

    Attention: queries, keys and values (B, H, N, d) and the gradient, views of what the layers around attention leave,
    (B, N, 3, H, d) and (B, N, H, d); shared is a bias (H, N, N), if it has one. A convolution: images (B, C, H, W);
    shared are filters (O, C/G, k, k). All are from N(0, 1).
    """
    normal, B, s = partial(np.random.default_rng(0).standard_normal, dtype=precision), case.batch_size, case.shape
    if case.kind == "conv":
        images, filters = (B, s.channels, s.side, s.side), (s.filters, s.channels // s.groups, *2 * (s.kernel_size,))
        return [normal(images)], [normal(filters)], normal((B, s.filters, s.out_side, s.out_side))
    N, H, d, has_bias = s
    qkv, dheads = normal((B, N, 3, H, d)).transpose(2, 0, 3, 1, 4), normal((B, N, H, d)).transpose(0, 2, 1, 3)
    return [*qkv], [normal((H, N, N))] if has_bias else [], dheads


def product_rate(threads):
    """A function that returns the best rate of matrix products alone, in operations per second.

    As in a training step of ours: in as many threads, each with matrices of its own and a single-threaded BLAS.
    """
    generator = np.random.default_rng(0)

    def product(side):
        each = [generator.standard_normal((3, side, side), dtype="float32") for _ in range(threads)]
        operations = 2 * side**3 * threads
        return operations, lambda: map_threads(lambda x: np.matmul(x[0], x[1], out=x[2]), each, threads)

    return best_rate([product(side) for side in MATRIX_SIDES])


def best_rate(products):
    """A function that runs pairs (operations, product), each for `PRODUCT_SECONDS`, and returns the highest rate."""

    def rate(operations, product):
        started, count = time.perf_counter(), 0
        while (seconds := time.perf_counter() - started) < PRODUCT_SECONDS:
            product()
            count += 1
        return operations * count / seconds

    return lambda: max(rate(*each) for each in products)
