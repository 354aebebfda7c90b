"""The implementations that are timed, each in a process of its own, and the turns that they take."""

import os
import pickle
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import tinyvit
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
COMPILED = Contestant("compile", "torch.compile", options={"compiled": True})
PRODUCTS = Contestant("products", "matrix products, NumPy", "steps")
TORCH_PRODUCTS = Contestant("torch_products", "matrix products, PyTorch")


def installed(package):
    return find_spec(package) is not None


def contestants(levels, torch=True, compiled=False):
    """(contestants for the cases, contestants for matrix products, {name: why it was left out})."""
    ours, left_out = [TINYVIT[level] for level in levels], {}
    if torch and installed("torch"):
        theirs, products = [EAGER, CHANNELS_LAST, *([COMPILED] if compiled else [])], [PRODUCTS, TORCH_PRODUCTS]
        if not installed("timm"):
            left_out["timm"] = "timm is not installed; to compare with PyTorch's models: pip install timm"
    else:
        theirs, products = [], [PRODUCTS]
        if torch:
            left_out["torch"] = "PyTorch is not installed; to compare with it: pip install torch timm"
        elif compiled:
            left_out["compile"] = "--compile needs --torch"
    return ours + theirs, products, left_out


class Player:
    """A contestant with its worker process and its results.

    seconds   of a step, one entry a round; fewer where it could not go on
    values    what the step returned: a loss, or the rate of matrix products
    second    what the second step of all returned: a loss that depends on the gradients of the first
    before    bytes in use before the case was built; `peak` the most that was in use
    problem   why it could not go on, or None; `died` whether its process ended by itself
    """

    def __init__(self, contestant, threads, precision):
        self.contestant, self.threads, self.precision = contestant, threads, precision
        self.problem, self.died, self.errors = None, False, tempfile.TemporaryFile()  # noqa: SIM115 (see `kill`)
        root = str(Path(tinyvit.__file__).parents[1])
        own = {"TINYVIT_KERNELS": contestant.kernels, "TORCHINDUCTOR_COMPILE_THREADS": "1",
               "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))}  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tinyvit.bench.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self.errors, env=os.environ | own | dict.fromkeys(THREADS, str(threads)),
        )  # fmt: skip

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def begin(self, case):
        """Tell it to build a case, or with None matrix products, without waiting for it."""
        self.seconds, self.values, self.second, self.before, self.peak = [], [], None, None, None
        one = self.contestant
        self.tell("prepare", one.module, case, self.precision, self.threads, one.options)

    def warm(self, seconds):
        """Wait until the case is built, warm up, and measure how many steps fill a turn of `seconds`."""
        self.before = self.answer()
        self.tell("warm", seconds)
        step, self.second = self.answer() or (1.0, None)
        self.repeats = max(1, round(seconds / step))

    def turn(self):
        self.tell("turn", self.repeats)
        answer = self.answer()
        if answer is not None:
            self.seconds.append(answer[0])
            self.values.append(answer[1])

    def finish(self):
        self.tell("peak")
        self.peak = self.answer()

    def tell(self, name, *arguments):
        """Send a command; `answer` waits for its result."""
        if self.problem is None:
            with suppress(OSError):  # `answer` says how it ended
                pickle.dump((name, arguments), self.process.stdin)
                self.process.stdin.flush()

    def answer(self):
        """The result of a command, or None after a problem."""
        if self.problem is not None:
            return None
        try:
            result, self.problem = pickle.load(self.process.stdout)
        except (EOFError, pickle.UnpicklingError):
            result, self.problem, self.died = None, self.how_it_ended(), True
        if self.problem is not None:
            self.kill()  # nothing more comes from it, and the others can have its memory
        return result

    def how_it_ended(self):
        status = self.process.wait()
        if status == -9:  # SIGKILL, which Windows doesn't have
            return "its process was killed, as the system does when memory runs out; take a smaller --batch-size"
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
        return f"its process ended with status {status}: {last}"

    def kill(self):
        """End the process at once, whatever it is doing."""
        self.process.kill()
        self.process.wait()
        for file in (self.process.stdin, self.process.stdout, self.errors):
            with suppress(OSError):
                file.close()


def take_turns(players, rounds, pause=0.0, after_turn=lambda: None):
    """Give every player one turn per round; a different one starts each round.

    pause   seconds between turns, in which the last one's idle threads stop to look for work
    """
    for number in range(rounds):
        first = number % len(players)
        for player in players[first:] + players[:first]:
            player.turn()
            after_turn()
            time.sleep(pause)
