"""A process that computes on command: `python -m tinyvit.bench.worker`.

It reads pickled pairs (name of a method of `Work`, arguments), and answers each with a pickled pair (result, None), or
(None, a line) where that can't be done. It ends when its input does.
"""

import os
import pickle
import sys
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path

LEAST_STEPS = 2  # to warm up: the first allocates, the second finds everything in place


def main():
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints is not an answer
    work = Work()
    with suppress(EOFError, BrokenPipeError):
        while True:
            name, arguments = pickle.load(sys.stdin.buffer)
            try:
                answer = getattr(work, name)(*arguments), None
            except Exception as error:
                answer = None, in_a_line(error)
            pickle.dump(answer, answers)
            answers.flush()


class Work:
    """The work of a process; its methods are the commands."""

    def prepare(self, module, case, precision, threads, options):
        """Build a case, or with None matrix products; returns the bytes in use when only libraries were loaded."""
        module = import_module(f"tinyvit.bench.{module}")
        module.load(threads)
        before = memory("VmRSS")
        if case is None:
            self.step = module.products(precision, threads)
        else:
            self.step = module.prepare(case, precision, threads, **options)
        return before

    def warm(self, seconds):
        """Take steps for this many seconds, at least two; returns the shortest time and what the second returned."""
        times, values = [], []
        while len(times) < LEAST_STEPS or sum(times) < seconds:
            started = time.perf_counter()
            values.append(self.step())
            times.append(time.perf_counter() - started)
        return min(times), values[LEAST_STEPS - 1]

    def turn(self, repeats):
        """Take steps; returns the seconds of one and the largest number that they returned."""
        started = time.perf_counter()
        values = [self.step() for _ in range(repeats)]
        return (time.perf_counter() - started) / repeats, max(values)

    def peak(self):
        return memory("VmHWM")


def memory(name):
    """Bytes that this process uses (VmRSS), or used at most (VmHWM); None where the system doesn't say.

    Not from `getrusage` on Linux, whose peak includes that of the parent process.
    """
    with suppress(OSError):
        lines = Path("/proc/self/status").read_text().splitlines()
        return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), None)
    with suppress(ImportError):  # Windows has no such module
        import resource

        if name == "VmHWM":
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return None


def in_a_line(error, longest=110):
    """An error in one line of limited length."""
    text = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
    if isinstance(error, MemoryError) or "can't allocate memory" in text:
        text = f"out of memory; take a smaller --batch-size ({text})"
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


if __name__ == "__main__":
    main()
