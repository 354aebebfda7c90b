"""A whole benchmark: from cases to results that JSON can hold. Each implementation computes in a process of its own."""

import multiprocessing
import os
import time
from contextlib import ExitStack
from importlib.util import find_spec
from statistics import median, quantiles
from typing import NamedTuple

import numpy as np

from tinyvit.bench import worker

TOLERANCE = 1e-3  # of a loss after one step, in float32
TURN = 0.2        # seconds of a contestant's turn in a round, or one step if that is longer
PAUSE = 0.05      # seconds between turns, in which the last one's idle threads stop to look for work
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
        if self.module == "torch_steps" and case.architecture and not find_spec("timm"):
            return False
        return case.convolves or "channels_last" not in self.options


def tinyvit(level):
    """tinyvit at a level of its kernels."""
    return Contestant(level, f"tinyvit, {level}", "steps", kernels=level)


TORCH = [Contestant("torch", "PyTorch eager"), Contestant("channels_last", "PyTorch, channels last",
                                                          options={"channels_last": True})]  # fmt: skip
PRODUCTS = Contestant("products", "matrix products, NumPy", "steps")
TORCH_PRODUCTS = Contestant("torch_products", "matrix products, PyTorch")


def contestants(levels):
    """(contestants for the cases, contestants for matrix products, {name: why it was left out})."""
    ours = list(map(tinyvit, levels))
    if not find_spec("torch"):
        return ours, [PRODUCTS], {"torch": "PyTorch is not installed; to compare with it: pip install torch timm"}
    missing = {"timm": "timm is not installed; to compare with PyTorch's models: pip install timm"}
    return [*ours, *TORCH], [PRODUCTS, TORCH_PRODUCTS], {} if find_spec("timm") else missing


class Player:
    """A contestant with its process, which builds a case, or with None matrix products, and its results.

    before    bytes in use before the case was built; `peak` the most that was in use
    second    what the second step of all returned: a loss that depends on the gradients of the first
    seconds   of a step, one entry a round; fewer where it could not go on
    values    what a step returned, likewise: a loss, or the rate of matrix products
    problem   why it could not go on, or None
    """

    before = second = peak = problem = None

    def __init__(self, contestant, case, threads, turn=TURN):
        self.contestant, self.seconds, self.values = contestant, [], []
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        what = theirs, contestant.module, case, threads, contestant.options, turn
        self.process = context.Process(target=worker.work, args=what, daemon=True)
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
        """End the process at once, whatever it is doing."""
        self.pipe.close()
        self.process.kill()
        self.process.join()

    def built(self):
        """Wait until the case is built."""
        self.before = self.answer()

    def warm(self):
        """Have it warm up."""
        self.second = self.answer(go_on=True)

    def turn(self):
        """Have it take one turn."""
        if (answer := self.answer(go_on=True)) is not None:
            seconds, value, self.peak = answer
            self.seconds.append(seconds)
            self.values.append(value)

    def answer(self, go_on=False):
        """What the process sends next, if it is told to go on; None after a problem."""
        if self.problem is not None:
            return None
        try:
            if go_on:
                self.pipe.send(None)
            answer, self.problem = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            killed = "its process was killed, as the system does when memory runs out"
            ended = f"its process ended with status {self.process.exitcode}"
            answer, self.problem = None, killed if self.process.exitcode == -9 else ended
        return answer


def run(cases, levels, threads, rounds, turn=TURN, products=True):
    """Yield the result of each case as soon as it is there; see `result_of`.

    levels     of tinyvit's kernels
    products   whether to time matrix products alone, which the floor is worked out from
    """
    playing, rating, _ = contestants(levels)
    for case in cases:
        with ExitStack() as stack:
            players, rates = (
                [stack.enter_context(Player(one, what, threads, turn)) for one in some]
                for some, what in (([one for one in playing if one.plays(case)], case), (rating * products, None))
            )
            for player in players + rates:  # all are started: loading libraries takes a while
                player.built()
            for player in players + rates:
                player.warm()
            take_turns(players + rates, rounds)
            yield result_of(case, players, rates)


def take_turns(players, rounds):
    """Give every player one turn per round; a different one starts each round."""
    for number in range(rounds):
        first = number % len(players)
        for player in players[first:] + players[:first]:
            player.turn()
            time.sleep(PAUSE)


def result_of(case, players, rates=()):
    """The result of a case, as a dict for JSON.

    The floor is what the matrix products alone take, at 2 operations for each multiply-add and the best library's rate:
    the median over rounds, as for the steps, so that the noise of the machine is in both of what is compared.
    """
    multiply_adds = case.multiply_adds()
    rate = middle([max(values) for values in zip(*(player.values for player in rates if player.values))])
    floor = quotient(2 * multiply_adds, rate)
    return {
        "case": case.name,
        "title": case.title,
        "batch_size": case.batch_size,
        "multiply_adds": multiply_adds,
        "floor": {
            "seconds": floor,
            "operations_per_second": rate,
            "by_library": {player.contestant.name: middle(player.values) for player in rates},
            "problems": {player.contestant.name: player.problem for player in rates if player.problem},
        },
        "results": [row_of(case, player, players, floor) for player in players],
        "disagreement": None if case.draws else disagreement({one.contestant.title: one.second for one in players}),
    }


def disagreement(values, tolerance=TOLERANCE):
    """A warning if the contestants' second steps differ by more than rounding, so that times mean nothing."""
    known = {name: value for name, value in values.items() if value is not None}
    each = np.array([*known.values()] or [0.0])
    if np.ptp(each) <= tolerance * np.max(abs(each)):  # which no NaN is
        return None
    return f"not the same work: {', '.join(f'{name} got {value:.6g}' for name, value in known.items())}"


def row_of(case, player, players, floor):
    """One contestant's figures. `ratios` says how many times as long each other one took, see `ratio`."""
    one, seconds = player.contestant, middle(player.seconds)
    others = {other.contestant.name: other.seconds for other in players if other is not player}
    return {
        "name": one.name,
        "title": one.title,
        "median": seconds,
        "quartiles": quartiles(player.seconds),
        "per_second": quotient(case.batch_size, seconds),
        "of_floor": quotient(floor, seconds),
        "ratios": {name: ratio(theirs, player.seconds) for name, theirs in others.items()},
        "peak_bytes": player.peak,
        "bytes_before": player.before,
        "seconds": player.seconds,
        "problem": player.problem,
    }


def failed(result):
    """Whether a measurement of a case failed, or its contestants did different work."""
    problems = [row["problem"] for row in result["results"]]
    return any([*problems, *result["floor"]["problems"], result["disagreement"]])


def ratio(theirs, ours):
    """The median over rounds of their time divided by ours: above 1 where we are faster. None without a common round.

    Both times of a round were taken within moments of each other, so slower changes of the machine's speed cancel.
    """
    return middle([their / our for their, our in zip(theirs, ours)])


def middle(values):
    return median(values) if values else None


def quartiles(values):
    """[lower, upper] quartile, or None."""
    return quantiles(values, n=4, method="inclusive")[::2] if len(values) > 1 else 2 * values or None


def quotient(numerator, denominator):
    """A quotient, or None where a value is missing."""
    return None if numerator is None or not denominator else numerator / denominator
