"""Matrix products alone: the highest rate that this machine reaches.

NumPy's run as a training step of ours runs them: in as many threads, each with a single-threaded BLAS. PyTorch's
are measured as well where it is installed, in `torch_steps`, since it brings a library of its own.
"""

import time

import numpy as np

from tinyvit.training.threads import map_threads, thread_count

SQUARE = (512, 1024)  # sides of products that every good library does well
SECONDS = 0.05        # for each shape in a turn


def shapes_for(case, threads):
    """Shapes (m, k, n) of the products to try for a case: squares, and its own largest."""
    return [(side, side, side) for side in SQUARE] + case.products(threads)


def prepare(case, precision):
    """A function that runs every shape for a moment, and returns the highest rate in floating-point operations/s."""
    threads, generator = thread_count(), np.random.default_rng(0)

    def product(m, k, n):
        def own():
            shapes = (m, k), (k, n)
            a, b = (generator.standard_normal(shape, dtype=precision) for shape in shapes)
            return a, b, np.empty((m, n), precision)

        operands = [own() for _ in range(threads)]  # each thread has its own

        def run(repeats):
            def repeat(arrays):
                a, b, out = arrays
                for _ in range(repeats):
                    np.matmul(a, b, out=out)

            map_threads(repeat, operands, threads)

        return 2 * m * k * n * threads, run

    return best_of([product(*shape) for shape in shapes_for(case, threads)])


def best_of(products):
    """A function that times pairs (operations, run(repeats)), each for `SECONDS`, and returns the highest rate."""

    def rate(operations, run, repeats):
        started = time.perf_counter()
        run(repeats)
        return operations * repeats / (time.perf_counter() - started)

    # The first run of each is slow, so how many fit is known after the second.
    rates = [max(rate(operations, run, 1) for _ in range(2)) for operations, run in products]
    repeats = [max(1, round(SECONDS * rate / operations)) for rate, (operations, _) in zip(rates, products)]
    return lambda: max(rate(*product, count) for product, count in zip(products, repeats))
