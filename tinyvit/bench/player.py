"""The implementations that are timed, each in a process of its own."""

import multiprocessing
import os
from contextlib import suppress
from importlib.util import find_spec
from typing import NamedTuple

from tinyvit.bench import worker
from tinyvit.kernels import LEVELS

# The variables that set the number of threads of BLAS libraries and kernels.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "NUMBA_NUM_THREADS",
           "TINYVIT_THREADS")  # fmt: skip


class Contestant(NamedTuple):
    """One implementation: a module of this package, and the arguments of its `prepare` besides the case's."""

    name: str
    title: str
    module: str = "torch_steps"
    options: dict = {}  # noqa: RUF012 (only read)
    kernels: str = ""

    def plays(self, case):
        """Whether it takes part in a case: channels last is for convolutions, and PyTorch's models are timm's."""
        if self.module == "torch_steps" and case.architecture and not installed("timm"):
            return False
        return case.convolves or "channels_last" not in self.options


TINYVIT = {level: Contestant(level, f"tinyvit, {level}", "steps", kernels=level) for level in LEVELS}
EAGER = Contestant("torch", "PyTorch eager")
CHANNELS_LAST = Contestant("channels_last", "PyTorch, channels last", options={"channels_last": True})
PRODUCTS = Contestant("products", "matrix products, NumPy", "steps")
TORCH_PRODUCTS = Contestant("torch_products", "matrix products, PyTorch")


def installed(package):
    return find_spec(package) is not None


def contestants(levels):
    """(contestants for the cases, contestants for matrix products, {name: why it was left out})."""
    ours = [TINYVIT[level] for level in levels]
    if not installed("torch"):
        return ours, [PRODUCTS], {"torch": "PyTorch is not installed; to compare with it: pip install torch timm"}
    missing = {"timm": "timm is not installed; to compare with PyTorch's models: pip install timm"}
    left_out = {} if installed("timm") else missing
    return [*ours, EAGER, CHANNELS_LAST], [PRODUCTS, TORCH_PRODUCTS], left_out


class Player:
    """A contestant with its process and its results.

    seconds   of a step, one entry a round; fewer where it could not go on
    values    what the step returned: a loss, or the rate of matrix products
    second    what the second step of all returned: a loss that depends on the gradients of the first
    before    bytes in use before the case was built; `peak` the most that was in use
    problem   why it could not go on, or None
    """

    def __init__(self, contestant, threads):
        self.contestant, self.threads, self.problem = contestant, threads, None
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=worker.work, args=(theirs,), daemon=True)
        before = dict(os.environ)
        os.environ.update(dict.fromkeys(THREADS, str(threads)), TINYVIT_KERNELS=contestant.kernels)
        try:
            self.process.start()  # which inherits them
        finally:
            os.environ.clear()
            os.environ.update(before)
        theirs.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def begin(self, case):
        """Tell it to build a case, or with None matrix products, without waiting for it."""
        self.seconds, self.values, self.second, self.before, self.peak = [], [], None, None, None
        self.tell(worker.prepare, self.contestant.module, case, self.threads, self.contestant.options)

    def warm(self, seconds):
        """Wait until the case is built, warm up, and measure how many steps fill a turn of `seconds`."""
        self.before = self.answer()
        self.tell(worker.warm, seconds)
        step, self.second = self.answer() or (1.0, None)
        self.repeats = max(1, round(seconds / step))

    def turn(self):
        self.tell(worker.turn, self.repeats)
        answer = self.answer()
        if answer is not None:
            self.seconds.append(answer[0])
            self.values.append(answer[1])

    def finish(self):
        self.tell(worker.peak)
        self.peak = self.answer()

    def tell(self, function, *arguments):
        """Have a function of `worker` called; `answer` waits for its result."""
        if self.problem is None:
            with suppress(OSError):  # `answer` says how it ended
                self.pipe.send((function, arguments))

    def answer(self):
        """The result of a function, or None after a problem."""
        if self.problem is not None:
            return None
        try:
            result, self.problem = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            killed = "its process was killed, as the system does when memory runs out"
            ended = f"its process ended with status {self.process.exitcode}"
            result, self.problem = None, killed if self.process.exitcode == -9 else ended
        if self.problem is not None:
            self.end()  # nothing more comes from it, and the others can have its memory
        return result

    def end(self):
        """End the process at once, whatever it is doing."""
        self.pipe.close()
        self.process.kill()
        self.process.join()
