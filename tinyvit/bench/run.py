"""A whole benchmark: from cases to results that JSON can hold. Each implementation computes in a process of its own."""

import multiprocessing
import time
from contextlib import ExitStack
from importlib.util import find_spec
from statistics import median, quantiles
from typing import NamedTuple

import numpy as np

from tinyvit.bench import worker

TOLERANCE = 1e-3  # of a loss after one step, in float32
TURN_SECONDS = 0.2        # seconds of a contestant's turn in a round, or one step if that is longer
PAUSE_SECONDS = 0.05      # seconds between turns, in which the last one's idle threads stop to look for work


class Contestant(NamedTuple):
    """One implementation: a module of this package, and the level of tinyvit's kernels in its process."""

    name: str
    title: str
    module: str = "torch_steps"
    kernels: str | None = None

    def takes_part(self, case):
        """Whether it takes part in a case: channels last is for convolutions, and PyTorch's models are timm's."""
        if self.module == "torch_steps" and case.architecture and not find_spec("timm"):
            return False
        return case.has_convolutions or self.name != "channels_last"


def tinyvit_at(level):
    """tinyvit at a level of its kernels."""
    return Contestant(level, f"tinyvit, {level}", "steps", kernels=level)


TORCH = [Contestant("torch", "PyTorch eager"), Contestant("channels_last", "PyTorch, channels last")]
PRODUCTS = Contestant("products", "matrix products, NumPy", "steps")
TORCH_PRODUCTS = Contestant("torch_products", "matrix products, PyTorch")


def contestants(levels):
    """(contestants for the cases, contestants for matrix products, {name: why it was left out})."""
    ours = list(map(tinyvit_at, levels))
    if not find_spec("torch"):
        return ours, [PRODUCTS], {"torch": "PyTorch is not installed; to compare with it: pip install torch timm"}
    missing = {"timm": "timm is not installed; to compare with PyTorch's models: pip install timm"}
    return [*ours, *TORCH], [PRODUCTS, TORCH_PRODUCTS], {} if find_spec("timm") else missing


class Player:
    """A contestant with its process, which builds a case, or with None matrix products, and its results.

    answers   what its process has sent, see `worker.progress`; fewer where it could not go on
    problem   why it could not go on, or None
    """

    problem = None

    def __init__(self, contestant, case, threads, turn=TURN_SECONDS):
        self.contestant, self.answers = contestant, []
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=worker.serve, args=(theirs, contestant, case, threads, turn), daemon=True)
        self.process.start()
        theirs.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """End the process at once, whatever it is doing."""
        self.pipe.close()
        self.process.kill()
        self.process.join()

    def advance(self):
        """Have it build its case, then warm up, then take one turn after the other; nothing after a problem."""
        if self.problem is not None:
            return
        try:
            if self.answers:  # it begins by itself, so that all load their libraries at the same time
                self.pipe.send(None)
            answer, self.problem = self.pipe.recv()
            self.answers += [answer] * (self.problem is None)
        except (EOFError, OSError):
            self.process.join()
            killed = "its process was killed, as the system does when memory runs out"
            ended = f"its process ended with status {self.process.exitcode}"
            self.problem = killed if self.process.exitcode == -9 else ended

    @property
    def seconds(self):
        """Seconds of a step, one entry a round."""
        return [seconds for seconds, _, _ in self.answers[2:]]

    @property
    def values(self):
        """The number that the steps of each round returned: a loss, or the rate of matrix products."""
        return [value for _, value, _ in self.answers[2:]]


def run(cases, levels, threads, rounds, turn=TURN_SECONDS, products=True):
    """Yield the result of each case as soon as it is there; see `result_of`.

    levels     of tinyvit's kernels
    products   whether to time matrix products alone, which the floor is worked out from
    """
    playing, rating, _ = contestants(levels)
    for case in cases:
        with ExitStack() as stack:
            players, rates = (
                [stack.enter_context(Player(one, what, threads, turn)) for one in some]
                for some, what in (([one for one in playing if one.takes_part(case)], case), (rating * products, None))
            )
            for player in 2 * (players + rates):
                player.advance()
            take_turns(players + rates, rounds)
            yield result_of(case, players, rates)


def take_turns(players, rounds):
    """Give every player one turn per round; a different one starts each round."""
    for number in range(rounds):
        first = number % len(players)
        for player in players[first:] + players[:first]:
            player.advance()
            time.sleep(PAUSE_SECONDS)


def result_of(case, players, rates=()):
    """The result of a case, as a dict for JSON.

    The floor is what the matrix products alone take, at 2 operations for each multiply-add and the best library's rate:
    the median over rounds, as for the steps, so that the noise of the machine is in both of what is compared.
    """
    multiply_adds = case.multiply_adds()
    rate = median_of([max(values) for values in zip(*(player.values for player in rates if player.values))])
    floor = quotient(2 * multiply_adds, rate)
    second_steps = {one.contestant.title: one.answers[1] for one in players if len(one.answers) > 1}
    return {
        "case": case.name,
        "title": case.title,
        "batch_size": case.batch_size,
        "multiply_adds": multiply_adds,
        "floor": {
            "seconds": floor,
            "operations_per_second": rate,
            "problems": {player.contestant.name: player.problem for player in rates if player.problem},
        },
        "results": [row_of(case, player, players, floor) for player in players],
        "disagreement": None if case.is_random else disagreement(second_steps),
    }


def disagreement(values, tolerance=TOLERANCE):
    """A warning if the contestants' second steps differ by more than rounding, so that times mean nothing."""
    each = np.array([*values.values()] or [0.0])
    if np.ptp(each) <= tolerance * np.max(abs(each)):  # which no NaN is
        return None
    return f"not the same work: {', '.join(f'{name} got {value:.6g}' for name, value in values.items())}"


def row_of(case, player, players, floor):
    """One contestant's figures. `ratios` says how many times as long each other one took, see `ratio`."""
    one, seconds = player.contestant, median_of(player.seconds)
    return {
        "name": one.name,
        "title": one.title,
        "median": seconds,
        "quartiles": quartiles(player.seconds),
        "per_second": quotient(case.batch_size, seconds),
        "of_floor": quotient(floor, seconds),
        "ratios": {other.contestant.name: ratio(other.seconds, player.seconds) for other in players if other != player},
        "peak_bytes": player.answers[-1][2] if seconds else None,
        "bytes_before": player.answers[0] if seconds else None,
        "seconds": player.seconds,
        "problem": player.problem,
    }


def has_failed(result):
    """Whether a measurement of a case failed, or its contestants did different work."""
    problems = [row["problem"] for row in result["results"]]
    return any([*problems, *result["floor"]["problems"], result["disagreement"]])


def ratio(theirs, ours):
    """The median over rounds of their time divided by ours: above 1 where we are faster. None without a common round.

    Both times of a round were taken within moments of each other, so slower changes of the machine's speed cancel.
    """
    return median_of([their / our for their, our in zip(theirs, ours)])


def median_of(values):
    return median(values) if values else None


def quartiles(values):
    """[lower, upper] quartile, or None."""
    return quantiles(values, n=4, method="inclusive")[::2] if len(values) > 1 else 2 * values or None


def quotient(numerator, denominator):
    """A quotient, or None where a value is missing."""
    return None if numerator is None or not denominator else numerator / denominator
