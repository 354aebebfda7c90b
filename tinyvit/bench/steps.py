"""One step of a case, computed by tinyvit as in normal use. The level of the kernels is that of the process."""

import time
from functools import partial

import numpy as np

from tinyvit import functional as F
from tinyvit.backend import Key, to_device
from tinyvit.functional.patches import as_pair
from tinyvit.models import build
from tinyvit.nn import Context
from tinyvit.optim import AdamW
from tinyvit.training.cuda_graph import StepGraphs
from tinyvit.training.memory import freed_memory_kept
from tinyvit.training.step import train_step
from tinyvit.training.tasks.classification import classify
from tinyvit.training.threads import map_threads, slices

SIDES = (512, 1024)  # of matrices whose product every good library computes well
SECONDS = 0.05       # for each of these in a turn


def load(threads):
    """Load numba or SciPy if the kernels need them; that should not count as memory of the work."""
    F.gelu(np.zeros(1, np.float32))


def prepare(case, precision, threads):
    """A function that computes the next step of a case and returns a number to compare implementations by."""
    make = {"train": train, "infer": infer, "attention": attention, "conv": convolution}[case.kind]
    return make(case, precision, threads)


def train(case, precision, threads):
    """A training step. Returns the loss."""
    step = training_step(case, precision, threads)
    return lambda: float(step())


def training_step(case, precision, threads=None, device="cpu", replayed=False):
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
        return train_step(model, optimizer, images, targets, ctx, threads=threads, replay=replay).loss

    return step


def infer(case, precision, threads):
    """The logits of a batch. Returns the largest."""
    model = build(case.shape, seed=0, dtype=precision)
    images, _ = batch(case, precision)
    return lambda: float(classify(model, images, threads).max())


def attention(case, precision, threads):
    """Attention and its backward, the batch split over threads as a training step splits it.

    Returns the largest gradient of the bias or, without one, of the first sample's queries.
    """
    (q, k, v), dheads, bias = heads(case, precision)

    def run(part):
        _, cache = F.attention(q[part], k[part], v[part], bias)
        return F.attention_backward(dheads[part], cache)

    def step():
        gradients = map_threads(run, slices(case.batch_size, threads), threads)
        largest = gradients[0][0][0] if bias is None else sum(dbias for *_, dbias in gradients)
        return float(abs(largest).max())

    return step


def convolution(case, precision, threads):
    """A convolution and its backward, the batch split likewise. Returns the largest gradient of the filters."""
    s, (x, weight, dy) = case.shape, images_and_filters(case, precision)

    def run(part):
        _, cache = F.conv2d(x[part], weight, None, s.stride, s.padding, s.groups)
        return F.conv2d_backward(dy[part], cache)

    def step():
        with freed_memory_kept():
            gradients = map_threads(run, slices(case.batch_size, threads), threads)
        return float(abs(sum(dweight for _, dweight in gradients)).max())

    return step


def batch(case, precision):
    """Images (B, C, H, W) from N(0, 1) and labels (B,), the same for all contestants."""
    generator, c = np.random.default_rng(0), case.shape
    images = generator.standard_normal((case.batch_size, c.in_chans, *as_pair(c.img_size)), dtype=precision)
    return images, generator.integers(0, c.num_classes, case.batch_size)


def heads(case, precision):
    """Queries, keys and values (3, B, H, N, d) and dheads (B, H, N, d), views of what the layers around attention
    leave, (B, N, 3, H, d) and (B, N, H, d); and a bias (H, N, N) or None."""
    generator, B, (N, H, d, has_bias) = np.random.default_rng(0), case.batch_size, case.shape
    shapes = (B, N, 3, H, d), (B, N, H, d), (H, N, N)
    qkv, dheads, bias = (generator.standard_normal(shape, dtype=precision) for shape in shapes)
    return qkv.transpose(2, 0, 3, 1, 4), dheads.transpose(0, 2, 1, 3), bias if has_bias else None


def images_and_filters(case, precision):
    """Images (B, C, H, W), filters (O, C/G, k, k) and the gradient of their convolution, all from N(0, 1)."""
    generator, B, s = np.random.default_rng(0), case.batch_size, case.shape
    x, y = (B, s.channels, s.side, s.side), (B, s.filters, s.side_of_result, s.side_of_result)
    shapes = x, (s.filters, s.channels // s.groups, s.kernel_size, s.kernel_size), y
    return [generator.standard_normal(shape, dtype=precision) for shape in shapes]


def products(threads):
    """A function that returns the best rate of matrix products alone, in operations per second.

    As in a training step of ours: in as many threads, each with matrices of its own and a single-threaded BLAS.
    """
    generator = np.random.default_rng(0)

    def product(side):
        each = [generator.standard_normal((3, side, side), dtype="float32") for _ in range(threads)]
        operations = 2 * side**3 * threads
        return operations, lambda: map_threads(lambda x: np.matmul(x[0], x[1], out=x[2]), each, threads)

    return best_of([product(side) for side in SIDES])


def best_of(products):
    """A function that runs pairs (operations, product), each for `SECONDS`, and returns the highest rate."""

    def rate(operations, product):
        started, count = time.perf_counter(), 0
        while (seconds := time.perf_counter() - started) < SECONDS:
            product()
            count += 1
        return operations * count / seconds

    return lambda: max(rate(*each) for each in products)
