"""A batch split over threads, each with single-threaded matrix products.

NumPy runs one elementwise operation on one core; two halves of a batch in two threads use two. Modules keep no
activations, so this needs nothing but a gradient buffer for each thread.

How a batch is cut decides the last digits of its gradients, so that is as many parts as were asked for, on any machine:
`threads=8` gives the same sums on four cores. More parts than this process has cores take turns.
"""

import mmap
import os
import threading
import traceback
import warnings
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import cache
from importlib import import_module
from itertools import pairwise

import numpy as np

from tinyvit import kernels
from tinyvit.backend import array_module

PIXELS_PER_THREAD = 1 << 14  # numbers in the images of a part
BLAS_BUFFER = 32 << 20  # bytes that OpenBLAS takes for a product, from each of its libraries, in each thread
STACK = 8 << 20         # bytes, of a thread


_in_a_thread = ContextVar("tinyvit.in_a_thread", default=False)


class MoreThreadsThanCores(UserWarning):
    """More threads were asked for than could run at once."""


def cores():
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def thread_count(threads=None):
    """How many parts to cut the work into: as told, else TINYVIT_THREADS, else as many as this process has cores.

    For more than it has cores there is a warning; `at_once` says how many then run. Raises ValueError for less than 1.
    """
    asked = os.environ.get("TINYVIT_THREADS") if threads is None else threads
    if asked is None or asked == "":
        return cores()
    try:
        count = int(asked)
    except ValueError:
        count = 0
    if count < 1:
        raise ValueError(f"expected a number of threads of at least 1, got {asked!r}")
    if at_once(count) < count:
        warnings.warn(
            f"{count} threads were asked for, but this process may use {described(cores())}: the work is cut into "
            f"{count} parts, of which {at_once(count)} run at once",
            MoreThreadsThanCores,
            stacklevel=2,
        )
    return count


def at_once(threads):
    """How many of so many threads run at the same time: no more than there are cores."""
    return min(threads, cores())


def described(count):
    return f"{count} core{'s' * (count != 1)}"


def threads_for(images, threads=None):
    """How many threads to split a batch over: as told, else as many cores as there is work for."""
    if array_module(images) is not np:
        return 1
    count = thread_count(threads)
    # Small parts would wait for the interpreter, of which there is one, and not for arithmetic.
    return count if threads is not None else max(1, min(count, images.size // PIXELS_PER_THREAD))


def map_threads(function, pieces, threads):
    """[function(piece) for each piece], on at most `threads` cores in all; the first error is raised.

    Where `function` itself calls this, its pieces are worked through in its own thread.
    Raises MemoryError, too, where there is no memory for another thread.
    """
    pieces, threads = list(pieces), at_once(threads)
    if _in_a_thread.get():  # all threads are busy, some of them waiting for this one
        return [function(piece) for piece in pieces]
    with blas_threads(1 if len(pieces) > 1 else threads, threads):
        if threads == 1 or len(pieces) == 1:
            return [function(piece) for piece in pieces]
        futures = []
        try:
            for piece in pieces:
                # A copy of the context carries settings such as tinyvit.reference() into the thread.
                futures.append(pool(threads).submit(copy_context().run, in_a_thread, function, piece))
        except RuntimeError as error:
            if "new thread" not in str(error):
                raise
            wait(futures)
            pool(threads).shutdown(cancel_futures=True)  # or the piece that waits for a thread would run at some time
            pool.cache_clear()
            raise MemoryError(str(error)) from error  # there is no room for its stack
        finally:
            wait(futures)  # also after an error: no thread may go on adding to gradients
            let_go(futures)
        return [future.result() for future in futures]


def map_parts(function, parts, threads, device):
    """`map_threads` on the CPU; on a GPU, which needs no threads, one part after the other, and BLAS is left alone."""
    return map_threads(function, parts, threads) if device == "cpu" else list(map(function, parts))


def in_a_thread(function, piece):
    _in_a_thread.set(True)
    return function(piece)


def let_go(futures):
    """Free what functions that ran out of memory held, which their errors would keep for as long as they live."""
    for future in futures:
        if isinstance(future.exception(), MemoryError):
            traceback.clear_frames(future.exception().__traceback__)


@cache
def pool(threads):
    return ThreadPoolExecutor(threads, thread_name_prefix="tinyvit")


class BlasUse:
    """The limit in force for BLAS's threads, and how many calls rely on it."""

    lock, calls, limit = threading.Lock(), 0, None


@contextmanager
def blas_threads(count, threads):
    """Inside this BLAS takes `count` threads for a product. Of calls that overlap the first decides, and the last one
    sets things back."""
    fast = kernels.level() == "fast"
    require_address_space(threads, libraries=1 + fast)
    controller = blas_controller(fast)
    with BlasUse.lock:
        if BlasUse.calls == 0:
            BlasUse.limit = controller.limit(limits=count, user_api="blas")
        BlasUse.calls += 1
    try:
        yield
    finally:
        with BlasUse.lock:
            BlasUse.calls -= 1
            if BlasUse.calls == 0:
                BlasUse.limit.restore_original_limits()


def begin_anew():
    """A process that was forked has none of the threads, and nobody who would give the lock back."""
    pool.cache_clear()
    BlasUse.lock, BlasUse.calls = threading.Lock(), 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=begin_anew)


@cache
def blas_controller(fast):
    """What sets the number of threads of BLAS: of NumPy's, and of SciPy's, which compiled kernels use."""
    from threadpoolctl import ThreadpoolController

    if fast:
        import_module("tinyvit.kernels.fast")  # loads it
    return ThreadpoolController()


@cache
def require_address_space(threads, libraries):
    """Raise ValueError where `ulimit -v` leaves no room for what BLAS works in.

    OpenBLAS tries again and again to get a buffer that it can't have: whoever asks for a product then waits forever.
    """
    size = threads * (libraries * BLAS_BUFFER + STACK)
    try:
        mmap.mmap(-1, size).close()
    except OSError as error:
        raise ValueError(
            f"matrix products on {threads} thread{'s' * (threads > 1)} need {size >> 20} MB of address space, which "
            "the limit of this process doesn't leave; raise it (ulimit -v), or take fewer --threads"
        ) from error


def slices(length, parts):
    """`length` cut into at most `parts` stretches of nearly equal size, none empty."""
    parts = min(parts, length)
    edges = [length * i // parts for i in range(parts + 1)]
    return [slice(start, stop) for start, stop in pairwise(edges)]
