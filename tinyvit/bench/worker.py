"""The process in which the benchmark times one implementation; a pipe tells it when to go on."""

import os
import signal
import time
from contextlib import suppress
from importlib import import_module

from tinyvit.levels import using
from tinyvit.text import shorten
from tinyvit.training.memory import PROC, read_numbers

WARM_UP_STEPS = 2  # to warm up: the first allocates, the second finds everything in place


def serve(pipe, contestant, case, threads, seconds):
    """Send (answer, None) for each answer of `progress`, after a message for each but the first; or (None, error).
    Ends when the pipe is closed."""
    os.environ["TINYVIT_THREADS"] = str(threads)  # of which a step on a small batch takes fewer
    os.dup2(2, 1)  # whatever a library prints is not a result
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command, which closes the pipe
    with suppress(EOFError, OSError):
        try:
            with using(contestant.kernels):
                for answer in progress(contestant, case, threads, seconds):
                    pipe.send((answer, None))
                    pipe.recv()
        except Exception as error:
            pipe.send((None, error_line(error)))


def progress(contestant, case, threads, seconds):
    """Build a case, or with None matrix products; warm up for this many seconds, and take turns that last as long.

    Yields the bytes in use when only libraries were loaded; what the second step returned; then, for each turn, the
    seconds of a step, the largest number that its steps returned, and the most bytes that the process has used.
    """
    module = import_module(f"tinyvit.bench.{contestant.module}")
    module.load_libraries(threads)
    before = memory("VmRSS")
    step = module.product_rate(threads) if case is None else module.prepare(case, "float32", threads, contestant.name)
    yield before
    times, values = [], []
    while len(times) < WARM_UP_STEPS or sum(times) < seconds:
        started = time.perf_counter()
        values.append(float(step()))
        times.append(time.perf_counter() - started)
    yield values[WARM_UP_STEPS - 1]
    repeats = max(1, round(seconds / min(times)))
    while True:
        started = time.perf_counter()
        values = [float(step()) for _ in range(repeats)]
        yield (time.perf_counter() - started) / repeats, max(values), memory("VmHWM")


def memory(name):
    """Bytes that this process uses (VmRSS), or used at most (VmHWM); None on other systems than Linux."""
    return read_numbers(PROC / "self/status").get(name)


def error_line(error, longest=110):
    """An error in one line of limited length."""
    return shorten(" ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":"), longest - 1)
