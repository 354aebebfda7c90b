import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_bench import ATTENTION, CONFIG, CONV, INFER, TRAIN, small_run

from tinyvit.bench import run
from tinyvit.bench.run import Player, contestants, disagreement, has_failed, quartiles, ratio, result_of, take_turns


@pytest.fixture(autouse=True)
def without_torch(monkeypatch):
    monkeypatch.setattr(run, "find_spec", lambda name: None)


class Listed:
    """A player that only records its turns."""

    def __init__(self, name, order):
        self.name, self.order = name, order

    def advance(self):
        self.order.append(self.name)


def test_every_player_has_one_turn_per_round_and_they_take_turns_to_start():
    order = []
    take_turns([Listed(name, order) for name in "abc"], 4)
    assert "".join(order) == "abc" "bca" "cab" "abc"


@pytest.mark.end_to_end
def test_every_case_has_a_row_for_every_contestant_with_all_that_was_measured():
    results = small_run((TRAIN, INFER, ATTENTION, CONV), ("reference", "numpy"))
    assert [result["case"] for result in results] == ["small", "infer", "heads", "filters"]
    for result in results:
        assert [row["name"] for row in result["results"]] == ["reference", "numpy"]
        for row in result["results"]:
            assert len(row["seconds"]) == 2 and all(time > 0 for time in row["seconds"])
            assert row["quartiles"][0] <= row["median"] <= row["quartiles"][1]
            assert row["per_second"] == pytest.approx(result["batch_size"] / row["median"])
            assert row["of_floor"] == pytest.approx(result["floor"]["seconds"] / row["median"])
        assert result["disagreement"] is None
    assert json.loads(json.dumps(results, allow_nan=False)) == results and not any(map(has_failed, results))


class Played:
    """A player with given times."""

    problem = None

    def __init__(self, contestant, seconds, values=(), second=1.0):
        self.contestant, self.seconds, self.values = contestant, seconds, list(values)
        self.answers = [1, second, (seconds, values, 3)]


def test_ratios_and_the_share_of_the_floor_follow_from_the_times():
    ours = Played(run.tinyvit_at("fast"), [1.0, 2.0, 4.0])
    theirs = Played(run.TORCH[0], [1.5, 3.0, 10.0])
    rates = [Played(run.PRODUCTS, [], [1e6, 5e6, 2e6]), Played(run.TORCH_PRODUCTS, [], [4e6, 1e6, 1e6])]
    result = result_of(TRAIN, [ours, theirs], rates)
    fast, torch = result["results"]
    assert fast["ratios"] == {"torch": 1.5} and torch["ratios"] == {"fast": pytest.approx(1 / 1.5)}
    assert result["floor"]["operations_per_second"] == 4e6
    assert fast["of_floor"] == pytest.approx(2 * TRAIN.multiply_adds() / 4e6 / 2.0)
    assert result_of(TRAIN, [ours])["results"][0]["of_floor"] is None


@given(ours=st.lists(st.floats(1e-3, 10), min_size=1, max_size=12), factor=st.floats(0.1, 10))
def test_a_constant_multiple_of_our_time_gives_that_ratio_whatever_the_noise(ours, factor):
    assert ratio([factor * time for time in ours], ours) == pytest.approx(factor)


def test_a_ratio_compares_rounds_and_leaves_out_those_that_one_of_them_missed():
    assert ratio([2.0, 20.0, 4.0], [1.0, 10.0, 1.0]) == 2.0
    assert ratio([2.0, 6.0], [1.0]) == 2.0 and ratio([], [1.0]) is None
    assert quartiles([1.0, 2.0, 3.0, 4.0, 5.0]) == [2.0, 4.0]
    assert quartiles([7.0]) == [7.0, 7.0] and quartiles([]) is None


def test_contestants_that_did_not_do_the_same_work_are_named_unless_dropout_masks_differ():
    assert disagreement({"a": 2.0, "b": 2.0001}) is None
    assert disagreement({}) is None and disagreement({"a": 0.0, "b": 0.0}) is None
    assert disagreement({"a": 2.0, "b": 2.1}) == "not the same work: a got 2, b got 2.1"
    assert disagreement({"a": 2.0, "b": 2.1}, 0.1) is None and disagreement({"a": 2.0, "b": float("nan")}, 0.1)
    players = [Played(run.TORCH[0], [1.0], second=1.0), Played(run.tinyvit_at("numpy"), [1.0], second=2.0)]
    assert result_of(replace(TRAIN, shape=replace(CONFIG, drop_rate=0.1)), players)["disagreement"] is None
    assert "not the same work" in result_of(TRAIN, players)["disagreement"]


@pytest.mark.end_to_end
def test_a_worker_that_dies_is_reported_and_the_others_go_on(monkeypatch):
    advance = Player.advance

    def kill_one(player):
        if player.contestant.name == "reference":
            player.process.kill()
        advance(player)

    monkeypatch.setattr(Player, "advance", kill_one)
    (result,) = small_run(levels=("reference", "numpy"))
    dead, alive = result["results"]
    assert "killed" in dead["problem"] and dead["median"] is None and dead["seconds"] == []
    assert alive["problem"] is None and alive["median"] > 0 and alive["ratios"] == {"reference": None}
    assert json.dumps(result, allow_nan=False) and has_failed(result)


@pytest.mark.parametrize(("missing", "left_out", "models", "convolutions"), [
    ((), "", ["torch"], ["torch", "channels_last"]),
    (("timm",), "timm is not installed; .*pip install timm", [], ["torch", "channels_last"]),
    (("torch", "timm"), "PyTorch is not installed; .*pip install torch timm", [], []),
])  # fmt: skip
def test_what_is_not_installed_is_named_with_its_command_and_the_rest_takes_part(
    monkeypatch, missing, left_out, models, convolutions
):
    monkeypatch.setattr(run, "find_spec", lambda name: None if name in missing else name)
    playing, products, why = contestants(("numpy", "fast"))
    assert re.fullmatch(left_out, "".join(why.values()))
    assert [one.name for one in playing if one.takes_part(TRAIN)] == ["numpy", "fast", *models]
    assert [one.name for one in playing if one.takes_part(CONV)] == ["numpy", "fast", *convolutions]
    assert [one.name for one in playing if one.takes_part(ATTENTION)] == ["numpy", "fast", *convolutions[:1]]
    assert len(products) == 1 + bool(convolutions)
