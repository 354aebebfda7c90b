"""A batch split over threads, each with single-threaded matrix products.

NumPy runs one elementwise operation on one core; two halves of a batch in two threads use two. Modules keep no
activations, so this needs nothing but a gradient buffer for each thread.
"""

import os
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import copy_context
from functools import cache
from importlib import import_module
from itertools import pairwise

import numpy as np

from tinyvit import kernels
from tinyvit.backend import array_module

PIXELS_PER_THREAD = 1 << 14  # numbers in the images of a part


def thread_count(threads=None):
    """How many threads to use: as told, else TINYVIT_THREADS, else as many as this process has cores."""
    asked = os.environ.get("TINYVIT_THREADS") if threads is None else threads
    if asked is None or asked == "":
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        count = int(asked)
    except ValueError:
        count = 0
    if count < 1:
        raise ValueError(f"expected a number of threads of at least 1, got {asked!r}")
    return count


def threads_for(images, threads=None):
    """How many threads to split a batch over: as told, else as many cores as there is work for."""
    if array_module(images) is not np:
        return 1
    count = thread_count(threads)
    # Small parts would wait for the interpreter, of which there is one, and not for arithmetic.
    return count if threads is not None else max(1, min(count, images.size // PIXELS_PER_THREAD))


def map_threads(function, pieces, threads):
    """[function(piece) for each piece], on at most `threads` cores in all; the first error is raised."""
    pieces = list(pieces)
    with blas_controller().limit(limits=1 if len(pieces) > 1 else threads, user_api="blas"):
        if threads == 1 or len(pieces) == 1:
            return [function(piece) for piece in pieces]
        # A copy of the context carries settings such as tinyvit.reference() into the thread.
        futures = [pool(threads).submit(copy_context().run, function, piece) for piece in pieces]
        wait(futures)  # also after an error: no thread may go on adding to gradients
        return [future.result() for future in futures]


@cache
def pool(threads):
    return ThreadPoolExecutor(threads, thread_name_prefix="tinyvit")


@cache
def blas_controller():
    """What sets the number of BLAS's threads, for all of them that this process will use."""
    from threadpoolctl import ThreadpoolController

    if kernels.level() == "fast":
        import_module("tinyvit.kernels.fast")  # brings SciPy's BLAS with it
    return ThreadpoolController()


def slices(length, parts):
    """`length` cut into at most `parts` stretches of nearly equal size, none empty."""
    parts = min(parts, length)
    edges = [length * i // parts for i in range(parts + 1)]
    return [slice(start, stop) for start, stop in pairwise(edges)]
