"""The process in which the benchmark times one implementation; it is told through a pipe which function to call."""

import os
import signal
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path

LEAST_STEPS = 2  # to warm up: the first allocates, the second finds everything in place


def work(pipe):
    """Answer each (function, arguments) with (function(state, *arguments), None), or (None, why not), until the other
    end is closed."""
    os.dup2(2, 1)  # whatever a library prints is not a result
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command, which closes the pipe
    state = {}
    with suppress(EOFError, OSError):
        while True:
            function, arguments = pipe.recv()
            try:
                answer = function(state, *arguments), None
            except Exception as error:
                answer = None, in_a_line(error)
            pipe.send(answer)


def prepare(state, module, case, threads, options):
    """Build a case, or with None matrix products; returns the bytes in use when only libraries were loaded."""
    module = import_module(f"tinyvit.bench.{module}")
    module.load(threads)
    before = memory("VmRSS")
    state["step"] = module.products(threads) if case is None else module.prepare(case, "float32", threads, **options)
    return before


def warm(state, seconds):
    """Take steps for this many seconds, at least two; returns the shortest time and what the second returned."""
    times, values = [], []
    while len(times) < LEAST_STEPS or sum(times) < seconds:
        started = time.perf_counter()
        values.append(state["step"]())
        times.append(time.perf_counter() - started)
    return min(times), values[LEAST_STEPS - 1]


def turn(state, repeats):
    """Take steps; returns the seconds of one and the largest number that they returned."""
    started = time.perf_counter()
    values = [state["step"]() for _ in range(repeats)]
    return (time.perf_counter() - started) / repeats, max(values)


def peak(state):
    """The most bytes that the process has used."""
    return memory("VmHWM")


def memory(name):
    """Bytes that this process uses (VmRSS), or used at most (VmHWM); None on other systems than Linux."""
    with suppress(OSError):
        lines = Path("/proc/self/status").read_text().splitlines()
        return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), None)


def in_a_line(error, longest=110):
    """An error in one line of limited length."""
    text = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
