"""The GPU's highest rates: bytes per second of a long copy, operations per second of a large matrix product."""

import time

import numpy as np

from tinyvit import functional as F
from tinyvit.backend import library, low_precision_dtype, products_in
from tinyvit.bench.gpu_report.card import synchronize

COPY = 1 << 30     # bytes
SIDE = 8192        # of the matrices
REPEATS = 10


def measure(settings):
    """{"bytes_per_second": read and written, "operations_per_second": by precision}."""
    size, side = (1 << 22, 256) if settings.dry_run else (COPY, SIDE)
    device = settings.device
    xp = library(device)
    source = xp.zeros(size // 4, "float32")
    target = xp.empty(source.shape, "float32")

    def copy():
        target[...] = source

    rates = {precision: rate(xp, device, precision, side) for precision in settings.precisions}
    return {"bytes_per_second": 2 * size / seconds_of(copy, device), "operations_per_second": rates}


def rate(xp, device, precision, side):
    """Floating-point operations a second of a product of two random matrices, by the linear layer of the models."""
    dtype = low_precision_dtype("float32" if precision == "tf32" else precision)
    generator = np.random.default_rng(0)
    a, b = (xp.asarray(generator.standard_normal((side, side), "float32").astype(dtype)) for _ in range(2))
    with products_in("tf32" if precision == "tf32" else "float32"):
        return 2 * side**3 / seconds_of(lambda: F.linear(a, b), device)


def seconds_of(function, device):
    """The mean over a few calls."""
    for _ in range(3):
        function()
    synchronize(device)
    started = time.perf_counter()
    for _ in range(REPEATS):
        function()
    synchronize(device)
    return (time.perf_counter() - started) / REPEATS
