"""A whole benchmark: from cases to results that JSON can hold."""

import time
from contextlib import ExitStack
from statistics import median, quantiles

from tinyvit.bench.player import Player, contestants

TOLERANCE = 1e-3  # of a loss after one step, in float32
TURN = 0.2        # seconds of a contestant's turn in a round, or one step if that is longer
PAUSE = 0.05      # seconds between turns, in which the last one's idle threads stop to look for work


def run(cases, levels, threads, rounds, turn=TURN, products=True, after_turn=lambda: None):
    """Yield the result of each case as soon as it is there; see `result_of`.

    levels     of tinyvit's kernels
    products   whether to time matrix products alone, which the floor is worked out from
    """
    playing, rating, _ = contestants(levels)
    with ExitStack() as stack:
        rates = [stack.enter_context(Player(one, threads)) for one in rating if products]
        for case in cases:
            with ExitStack() as table:
                players = [table.enter_context(Player(one, threads)) for one in playing if one.plays(case)]
                for player in players + rates:
                    player.begin(None if player in rates else case)  # all at once: loading libraries takes a while
                for player in players + rates:
                    player.warm(turn)
                take_turns(players + rates, rounds, after_turn)
                for player in players:
                    player.finish()
                yield result_of(case, players, rates)


def take_turns(players, rounds, after_turn=lambda: None):
    """Give every player one turn per round; a different one starts each round."""
    for number in range(rounds):
        first = number % len(players)
        for player in players[first:] + players[:first]:
            player.turn()
            after_turn()
            time.sleep(PAUSE)


def turns(cases, levels, rounds, products=True):
    """The total number of turns."""
    playing, rating, _ = contestants(levels)
    return rounds * sum(products * len(rating) + sum(one.plays(case) for one in playing) for case in cases)


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


def failures(result):
    """Whether a measurement failed."""
    cases = result["cases"]
    rows = [row for line in cases + result.get("scaling", []) for row in line["results"]]
    return any(row["problem"] for row in rows) or any(one["floor"]["problems"] or one["disagreement"] for one in cases)


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
