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
from functools import cache
from importlib import import_module
from itertools import pairwise

import numpy as np

from tinyvit.arrays import array_module
from tinyvit.levels import level
from tinyvit.text import short
from tinyvit.training.meeting import LeftAlone

MOST = 4096  # threads that can be asked for
PIXELS_PER_THREAD = 1 << 14  # numbers in the images of a part


core_limit = None  # how many cores are left to this process by others on the same machine; None: all


def cores():
    """How many cores this process may use."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return there if core_limit is None else min(core_limit, there)


def limit_cores(count):
    """Have this process use at most `count` cores, or all: the ranks of a training divide those of a machine."""
    global core_limit
    core_limit = count


def thread_count(threads=None):
    """How many parts to cut the work into: as told, else TINYVIT_THREADS, else as many as this process has cores.

    Of more than it has cores, `at_once` says how many run. Raises ValueError for less than 1, and for more than `MOST`.
    """
    asked = os.environ.get("TINYVIT_THREADS") if threads is None else threads
    if asked is None or asked == "":
        return cores()
    try:
        count = int(asked)
    except ValueError:
        count = 0
    if not 1 <= count <= MOST:
        variable = "" if threads is not None else " in TINYVIT_THREADS"
        raise ValueError(f"expected a number of threads from 1 to {MOST:,}{variable}, got {short(repr(asked))}")
    return count


def at_once(threads):
    """How many threads run at the same time: no more than there are cores."""
    return min(threads, cores())


def threads_for(images, threads=None):
    """How many threads to split a batch over: as told, else as many cores as there is work for."""
    if array_module(images) is not np:
        return 1
    count = thread_count(threads)
    # Small parts would wait for the interpreter, of which there is one, and not for arithmetic.
    return count if threads is not None else max(1, min(count, images.size // PIXELS_PER_THREAD))


def map_threads(function, pieces, threads, device="cpu", meeting=None):
    """[function(piece) for each piece], on at most `threads` cores in all; the first error is raised.

    meeting   the `Meeting` of pieces that exchange values: all of them then run at the same time, in as many threads,
              even on fewer cores

    On a GPU, which needs no threads, and where `function` itself calls this, one piece follows the other in the same
    thread. Calls in several threads take turns.
    """
    pieces, met = list(pieces), meeting is not None
    if device != "cpu" or here.busy:
        if met and len(pieces) > 1:
            raise ValueError("pieces that exchange values can't follow one another in the same thread")
        return list(map(function, pieces))
    threads = at_once(threads)
    with taking_turns, blas_threads(threads if len(pieces) == 1 else 1):
        if len(pieces) > 1 and (met or threads > 1):
            return in_pool(meeting.attended(function) if met else function, pieces, len(pieces) if met else threads)
        here.busy = True
        try:
            return list(map(function, pieces))
        finally:
            here.busy = False


def busy():
    """Whether this thread computes a piece of a `map_threads`: what it calls itself runs in this thread alone."""
    return here.busy


def in_pool(function, pieces, threads):
    """[function(piece) for each piece], each in a thread of the pool."""
    # A copy of the context carries settings such as tinyvit.reference() into the thread.
    futures = [pool(threads).submit(copy_context().run, function, piece) for piece in pieces]
    try:
        wait(futures)
    finally:
        wait(futures)  # also after an interrupt: no thread may go on adding to gradients
    errors = [future.exception() for future in futures if future.exception()]
    if errors:
        raise min(errors, key=lambda error: isinstance(error, LeftAlone))  # which follows from another one
    return [future.result() for future in futures]


class Here(threading.local):
    """Whether this thread computes a piece, so that it must not start threads."""

    busy = False


here, taking_turns = Here(), threading.Lock()


@cache
def pool(threads):
    return ThreadPoolExecutor(threads, "tinyvit", initializer=setattr, initargs=(here, "busy", True))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool.cache_clear)  # a forked process has none of these threads


@contextmanager
def blas_threads(count):
    """Inside this, BLAS takes `count` threads for a product. It is one setting for the whole process."""
    libraries = blas_libraries(level() == "fast")
    before = [library.get_num_threads() for library in libraries]
    set_threads(libraries, [count] * len(libraries))
    try:
        yield
    finally:
        set_threads(libraries, before)


def set_threads(libraries, counts):
    """Set the number of threads of each. threadpoolctl ignores all threads but the first that ever set OpenBLAS's,
    unless that is cleared."""
    for library, count in zip(libraries, counts):
        clear = getattr(library, "clear_controlling_thread", lambda force: None)
        clear(force=True)
        library.set_num_threads(count)
        clear(force=True)


@cache
def blas_libraries(fast):
    """The controllers of BLAS's threads: of NumPy's BLAS, and of SciPy's, which compiled kernels use."""
    from threadpoolctl import ThreadpoolController

    if fast:
        import_module("tinyvit.kernels.fast")  # loads it
    return ThreadpoolController().select(user_api="blas").lib_controllers


def slices(length, parts):
    """`length` cut into at most `parts` stretches of nearly equal size, none empty; none of 0."""
    parts = max(1, min(parts, length))
    edges = [length * i // parts for i in range(parts + 1)]
    return [slice(start, stop) for start, stop in pairwise(edges) if stop > start]
