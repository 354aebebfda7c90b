"""A whole benchmark: from settings to results that JSON can hold."""

from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median, quantiles

from tinyvit.bench.player import Player, contestants, take_turns

TOLERANCE = 1e-3  # of a loss after one step, in float32


@dataclass(frozen=True)
class Settings:
    """Options of a benchmark.

    levels    of tinyvit's kernels; `torch`, `compiled` and `products` say whether to time PyTorch, torch.compile,
              and matrix products alone, which the floor is worked out from
    rounds    in each of which every contestant has a turn of `turn` seconds, or of one step if that is longer
    pause     seconds between turns
    """

    cases: tuple
    levels: tuple[str, ...]
    threads: int
    rounds: int = 10
    precision: str = "float32"
    torch: bool = True
    compiled: bool = False
    products: bool = True
    turn: float = 0.2
    pause: float = 0.05

    @property
    def contestants(self):
        playing, products, left_out = contestants(self.levels, self.torch, self.compiled)
        return playing, products if self.products else [], left_out

    @property
    def turns(self):
        """The total number of turns."""
        playing, products, _ = self.contestants
        return self.rounds * sum(len(products) + sum(one.plays(case) for one in playing) for case in self.cases)


def run(settings, after_turn=lambda: None):
    """Yield the result of each case as soon as it is there; see `result_of`."""
    playing, products, _ = settings.contestants

    def enter(stack, some):
        return [stack.enter_context(Player(one, settings.threads, settings.precision)) for one in some]

    with ExitStack() as stack:
        rates = enter(stack, products)
        for case in settings.cases:
            with ExitStack() as table:
                players = enter(table, [one for one in playing if one.plays(case)])
                for player in players + rates:
                    player.begin(None if player in rates else case)  # all at once: loading libraries takes a while
                for player in players + rates:
                    player.warm(settings.turn)
                take_turns(players + rates, settings.rounds, settings.pause, after_turn)
                for player in players:
                    player.finish()
                yield result_of(case, players, rates)


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
        "kind": case.kind,
        "unit": case.unit,
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


def disagreement(values):
    """A warning if the contestants' second steps differ by more than rounding, so that times mean nothing."""
    known = {name: value for name, value in values.items() if value is not None}
    low, high = min(known.values(), default=0.0), max(known.values(), default=0.0)
    if high - low <= TOLERANCE * max(abs(low), abs(high)):
        return None
    return f"not the same work: {', '.join(f'{name} got {value:.6g}' for name, value in known.items())}"


def row_of(case, player, players, floor):
    """One contestant's figures. `ratios` says how many times as long each other one took, see `ratio`."""
    one, time = player.contestant, middle(player.seconds)
    others = {other.contestant.name: other.seconds for other in players if other is not player}
    return {
        "name": one.name,
        "title": one.title,
        "median": time,
        "quartiles": quartiles(player.seconds),
        "per_second": quotient(case.batch_size, time),
        "of_floor": quotient(floor, time),
        "ratios": {name: ratio(seconds, player.seconds) for name, seconds in others.items()},
        "ratios_of_medians": {name: quotient(middle(seconds), time) for name, seconds in others.items()},
        "peak_bytes": player.peak,
        "bytes_before": player.before,
        "second_value": player.second,
        "steps_a_turn": player.repeats,
        "seconds": player.seconds,
        "problem": player.problem,
        # Not where torch.compile can't be used here, which is only said.
        "failed": player.problem is not None and (player.died or one.name != "compile"),
    }


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
