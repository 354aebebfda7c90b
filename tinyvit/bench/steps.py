"""One step of a case, computed by tinyvit as in normal use.

The number of threads and the level of the kernels are those of the process: TINYVIT_THREADS, TINYVIT_KERNELS.
"""

import numpy as np

from tinyvit import functional as F
from tinyvit.backend import Key
from tinyvit.functional.patches import as_pair
from tinyvit.models import build
from tinyvit.nn import Context
from tinyvit.optim import AdamW
from tinyvit.training.memory import freed_memory_kept
from tinyvit.training.step import train_step
from tinyvit.training.tasks.classification import classify
from tinyvit.training.threads import map_threads, slices, thread_count


def load():
    """Load numba or SciPy if the kernels need them; that should not count as memory of the work."""
    F.gelu(np.zeros(1, np.float32))


def prepare(case, precision):
    """A function that computes the next step of a case and returns a number to compare implementations by."""
    return {"train": train, "infer": infer, "attention": attention, "conv": convolution}[case.kind](case, precision)


def train(case, precision):
    """A training step as `train_step` takes it: loss, gradients, their norm, AdamW. Returns the loss."""
    model = build(case.config, seed=0, dtype=precision)
    optimizer = AdamW(model)
    images, targets = batch(case, precision)

    def step():
        ctx = Context(training=True, key=Key(seed=0, step=optimizer.t))
        return float(train_step(model, optimizer, images, targets, ctx).loss)

    return step


def infer(case, precision):
    """The logits of a batch. Returns the largest."""
    model = build(case.config, seed=0, dtype=precision)
    images, _ = batch(case, precision)
    return lambda: float(classify(model, images).max())


def attention(case, precision):
    """Attention and its backward, the batch split over threads as a training step splits it.

    Returns the largest gradient of the bias or, without one, of the first sample's queries.
    """
    qkv, dheads, bias = projections(case, precision)
    q, k, v = qkv.transpose(2, 0, 3, 1, 4)                                            # each (B, H, N, d)
    dheads = dheads.transpose(0, 2, 1, 3)
    count = thread_count()

    def run(part):
        _, cache = F.attention(q[part], k[part], v[part], bias)
        return F.attention_backward(dheads[part], cache)

    def step():
        gradients = map_threads(run, slices(case.batch_size, count), count)
        largest = gradients[0][0][0] if bias is None else sum(dbias for *_, dbias in gradients)
        return float(abs(largest).max())

    return step


def convolution(case, precision):
    """A convolution and its backward, the batch split over threads as a training step splits it.

    Returns the largest gradient of the filters.
    """
    x, weight, dy = images_and_filters(case, precision)
    count = thread_count()

    def run(part):
        _, cache = F.conv2d(x[part], weight, None, case.stride, case.padding, case.groups)
        return F.conv2d_backward(dy[part], cache)

    def step():
        with freed_memory_kept():
            gradients = map_threads(run, slices(case.batch_size, count), count)
        return float(abs(sum(dweight for _, dweight in gradients)).max())

    return step


def batch(case, precision, seed=0):
    """Images (B, C, H, W) from N(0, 1) and labels (B,), the same for all contestants."""
    generator, c = np.random.default_rng(seed), case.config
    shape = case.batch_size, c.in_chans, *as_pair(c.img_size)
    images = generator.standard_normal(shape, dtype=precision)
    return images, generator.integers(0, c.num_classes, case.batch_size)


def projections(case, precision, seed=0):
    """Queries, keys and values (B, N, 3, H, d), as the qkv layer leaves them, dheads (B, N, H, d), a bias or None."""
    generator = np.random.default_rng(seed)
    B, N, H, d = case.batch_size, case.tokens, case.heads, case.head_dim
    shapes = (B, N, 3, H, d), (B, N, H, d), (H, N, N)
    qkv, dheads, bias = (generator.standard_normal(shape, dtype=precision) for shape in shapes)
    return qkv, dheads, bias if case.bias else None


def images_and_filters(case, precision, seed=0):
    """Images (B, C, H, W), filters (O, C/G, k, k) and the gradient of their convolution, all from N(0, 1)."""
    generator, k = np.random.default_rng(seed), case.kernel_size
    side = (case.side + 2 * case.padding - k) // case.stride + 1
    shapes = (
        (case.batch_size, case.in_chans, case.side, case.side),
        (case.out_chans, case.in_chans // case.groups, k, k),
        (case.batch_size, case.out_chans, side, side),
    )
    return [generator.standard_normal(shape, dtype=precision) for shape in shapes]
