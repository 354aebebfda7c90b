"""A whole benchmark: from settings to results that JSON can hold."""

from contextlib import ExitStack
from dataclasses import dataclass

from tinyvit.bench.contestants import contestants
from tinyvit.bench.figures import best_rate, floor_seconds, middle, quartiles, quotient, ratio
from tinyvit.bench.turns import Player, take_turns

TURN = 0.2    # seconds that a turn lasts at least: short steps are taken several times in it
PAUSE = 0.05  # seconds between turns
TOLERANCE = 1e-3  # of a loss after one step, in float32


@dataclass(frozen=True)
class Settings:
    """Options of a benchmark.

    levels    of tinyvit's kernels; `torch`, `compiled` and `products` say whether to time PyTorch, torch.compile,
              and matrix products alone, which the floor is worked out from
    rounds    in each of which every contestant has a turn of `turn` seconds, or of one step if that is longer
    """

    cases: tuple
    levels: tuple[str, ...]
    threads: int
    rounds: int = 10
    precision: str = "float32"
    torch: bool = True
    compiled: bool = False
    products: bool = True
    turn: float = TURN
    pause: float = PAUSE

    @property
    def contestants(self):
        playing, products, left_out = contestants(self.levels, self.torch, self.compiled)
        return playing, products if self.products else [], left_out

    @property
    def turns(self):
        """The total number of turns."""
        playing, products, _ = self.contestants
        return self.rounds * sum(one.plays(case) for case in self.cases for one in (*playing, *products))


def run(settings, after_turn=lambda: None):
    """Yield the result of each case as soon as it is there; see `result_of`."""
    playing, products, _ = settings.contestants
    with ExitStack() as stack:
        rates = [stack.enter_context(Player(one, settings.threads, settings.precision)) for one in products]
        for case in settings.cases:
            with ExitStack() as table:
                here = [one for one in playing if one.plays(case)]
                players = [table.enter_context(Player(one, settings.threads, settings.precision)) for one in here]
                play(case, players + rates, settings, after_turn)
                yield result_of(case, players, rates)


def play(case, players, settings, after_turn=lambda: None):
    """Let the players compute a case in turns."""
    for player in players:
        player.begin(case)  # all at once, since loading libraries takes a while
    for player in players:
        player.warm(settings.turn)
    take_turns(players, settings.rounds, settings.pause, after_turn)
    for player in players:
        player.finish()


def result_of(case, players, rates=()):
    """The result of a case, as a dict for JSON."""
    multiply_adds = case.multiply_adds()
    rate = best_rate([player.values for player in rates])
    floor = floor_seconds(multiply_adds, rate)
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
            "by_library": {player.contestant.work: middle(player.values) for player in rates},
            "problems": {player.contestant.work: player.problem for player in rates if player.problem},
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
    """One contestant's figures. `ratios` says how many times as long each other one took, see `figures.ratio`."""
    time = middle(player.seconds)
    others = [other for other in players if other is not player]
    return {
        "name": player.contestant.name,
        "title": player.contestant.title,
        "median": time,
        "quartiles": quartiles(player.seconds),
        "per_second": quotient(case.batch_size, time),
        "of_floor": quotient(floor, time),
        "ratios": {other.contestant.name: ratio(other.seconds, player.seconds) for other in others},
        "ratios_of_medians": {other.contestant.name: quotient(middle(other.seconds), time) for other in others},
        "peak_bytes": player.peak,
        "bytes_before": player.before,
        "second_value": player.second,
        "steps_a_turn": player.repeats,
        "seconds": player.seconds,
        "problem": player.problem,
        "failed": failed(player),
    }


def failed(player):
    """Whether something went wrong: not where torch.compile can't be used here, which is only said."""
    return player.problem is not None and (player.died or player.contestant.work != "compile")
