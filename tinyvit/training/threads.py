"""A batch split over threads, each with single-threaded matrix products.

NumPy runs one elementwise operation on one core; two halves of a batch in two threads use two. Modules keep no
activations, so this needs nothing but a gradient buffer for each thread.

How a batch is cut decides the last digits of its gradients, so that is as many parts as were asked for, on any machine:
`threads=8` gives the same sums on four cores. More parts than this process has cores take turns.
"""

import os
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from functools import cache, partial
from importlib import import_module
from itertools import pairwise

import numpy as np

from tinyvit.arrays import array_module
from tinyvit.levels import level
from tinyvit.text import shorten
from tinyvit.training.meeting import BrokenExchange

MAX_THREADS = 4096               # that can be asked for
MIN_PIXELS_PER_THREAD = 1 << 14  # numbers in the images of a part

core_limit = None  # how many cores are left to this process by others on the same machine; None: all


def cores():
    """The number of cores that this process may use."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return there if core_limit is None else min(core_limit, there)


def limit_cores(count):
    """Have this process use at most `count` cores, or all: the ranks of a training divide those of a machine."""
    global core_limit
    core_limit = count


def thread_count(threads=None):
    """The number of parts to cut the work into: as told, else TINYVIT_THREADS, else as many as this process has cores.

    Of more than it has cores, `concurrent_threads` run. Raises ValueError unless it is 1 to `MAX_THREADS`.
    """
    asked = os.environ.get("TINYVIT_THREADS") if threads is None else threads
    if asked is None or asked == "":
        return cores()
    try:
        count = int(asked)
    except ValueError:
        count = 0
    if not 1 <= count <= MAX_THREADS:
        variable = "" if threads is not None else " in TINYVIT_THREADS"
        got = shorten(repr(asked))
        raise ValueError(f"expected a number of threads from 1 to {MAX_THREADS:,}{variable}, got {got}")
    return count


def concurrent_threads(threads):
    """The number of threads that run at the same time: no more than there are cores."""
    return min(threads, cores())


def threads_for(images, threads=None):
    """The number of threads to split a batch over: `threads` if given, otherwise as many cores as there is work for."""
    first = next(iter(images), images)  # of several sizes, each is an array of its own
    if array_module(first) is not np:
        return 1
    count = thread_count(threads)
    # Small parts would wait for the interpreter, of which there is one, and not for arithmetic.
    pixels = sum(map(np.size, images))
    return count if threads is not None else max(1, min(count, pixels // MIN_PIXELS_PER_THREAD))


def map_threads(function, pieces, threads, device="cpu", meeting=None):
    """[function(piece) for each piece], by `workers`."""
    pieces = list(pieces)
    with workers(len(pieces), threads, device, meeting) as map_pieces:
        return list(map_pieces(function, pieces))


@contextmanager
def workers(count, threads, device="cpu", meeting=None):
    """Inside this, a function like `map` that computes `count` pieces on at most `threads` cores in all.

    meeting   the `Meeting` of pieces that exchange values: all of them then run at the same time, in as many threads,
              even on fewer cores

    On a GPU, which needs no threads, and inside another one of these, one piece follows the other in the same thread.
    Calls in several threads take turns. Where pieces fail, the first error is raised.
    """
    exchanging = meeting is not None
    if device != "cpu" or thread_state.in_worker:
        if exchanging and count > 1:
            raise ValueError("pieces that exchange values can't follow one another in the same thread")
        yield map
        return
    threads = concurrent_threads(threads)
    with pool_lock, blas_threads(threads if count == 1 else 1):
        in_pool = count > 1 and (exchanging or threads > 1)
        thread_state.in_worker = True
        try:
            yield partial(map_in_pool, count if exchanging else threads, meeting) if in_pool else map
        finally:
            thread_state.in_worker = False


def map_in_pool(threads, meeting, function, *iterables):
    """[function(*arguments) for arguments in zip(*iterables)], each in a thread of the pool."""
    function = function if meeting is None else meeting.signal_end_after(function)
    # A copy of the context carries settings such as tinyvit.reference() into the thread.
    futures = [pool(threads).submit(copy_context().run, function, *arguments) for arguments in zip(*iterables)]
    try:
        wait(futures)
    finally:
        wait(futures)  # also after an interrupt: no thread may go on adding to gradients
    errors = [future.exception() for future in futures if future.exception()]
    if errors:
        raise min(errors, key=lambda error: isinstance(error, BrokenExchange))  # which follows from another one
    return [future.result() for future in futures]


class ThreadState(threading.local):
    """The state of each thread: whether it computes a piece, so that it must not start threads."""

    in_worker = False


thread_state, pool_lock = ThreadState(), threading.Lock()


@cache
def pool(threads):
    return ThreadPoolExecutor(threads, "tinyvit", initializer=setattr, initargs=(thread_state, "in_worker", True))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool.cache_clear)  # a forked process has none of these threads


@contextmanager
def blas_threads(count):
    """Inside this, BLAS takes `count` threads for a product. It is one setting for the whole process."""
    controller = blas_controller(level() == "fast")
    for library in controller.lib_controllers:  # OpenBLAS obeys only the first thread, unless it forgets it
        getattr(library, "clear_controlling_thread", lambda force: None)(force=True)
    with controller.limit(limits=count):
        yield


@cache
def blas_controller(fast):
    """The controller of BLAS's threads: of NumPy's BLAS, and of SciPy's, which compiled kernels use."""
    from threadpoolctl import ThreadpoolController

    if fast:
        import_module("tinyvit.kernels.fast")  # loads it
    return ThreadpoolController().select(user_api="blas")


def slices(length, parts, start=0):
    """`length` samples from `start` on, cut into at most `parts` slices of nearly equal size, none empty; none of 0."""
    parts = max(1, min(parts, length))
    edges = [start + length * i // parts for i in range(parts + 1)]
    return [slice(begin, end) for begin, end in pairwise(edges) if end > begin]


def rows_in(model, images, part):
    """The slices of images in which a model takes those in the slice `part`: all together, unless they have several
    sizes. Then they are the model's `rows`."""
    if images.dtype.kind != "O":
        return [part]
    rows = model.rows(images[part])
    return [slice(part.start + row.start, part.start + row.stop) for row in rows]
