import json
from dataclasses import replace

import pytest
from small_bench import ATTENTION, CONFIG, CONV, INFER, TRAIN, small_settings

from tinyvit.bench import contestants
from tinyvit.bench.run import disagreement, result_of, run
from tinyvit.bench.turns import Player

pytestmark = pytest.mark.end_to_end


@pytest.fixture(scope="module")
def results():
    """Four small cases with two levels of kernels."""
    ticks = []
    settings = small_settings(cases=(TRAIN, INFER, ATTENTION, CONV), levels=("reference", "numpy"))
    results = list(run(settings, lambda: ticks.append(None)))
    assert len(ticks) == settings.turns == 4 * 2 * 3
    return results


def test_every_case_has_a_row_for_every_contestant_with_all_that_was_measured(results):
    assert [result["case"] for result in results] == ["small", "infer", "heads", "filters"]
    for result in results:
        assert [row["name"] for row in result["results"]] == ["reference", "numpy"]
        for row in result["results"]:
            assert len(row["seconds"]) == 2 and all(time > 0 for time in row["seconds"])
            assert row["quartiles"][0] <= row["median"] <= row["quartiles"][1]
            assert row["per_second"] == pytest.approx(result["batch_size"] / row["median"])
            assert row["of_floor"] == pytest.approx(result["floor"]["seconds"] / row["median"])
            assert row["problem"] is None and not row["failed"]
        assert result["floor"]["seconds"] == pytest.approx(
            2 * result["multiply_adds"] / result["floor"]["operations_per_second"]
        )


def test_kernels_compute_what_the_reference_does(results):
    for result in results:
        reference, numpy = (row["second_value"] for row in result["results"])
        assert reference == pytest.approx(numpy, rel=1e-4)
        assert result["disagreement"] is None


def test_results_can_be_written_as_json(results):
    assert json.loads(json.dumps(results, allow_nan=False)) == results


class Played:
    """A player with given times."""

    before, peak, repeats, died, problem = 1, 3, 1, False, None

    def __init__(self, contestant, seconds, values=(), second=1.0):
        self.contestant, self.seconds, self.values, self.second = contestant, seconds, list(values), second


def test_ratios_and_the_share_of_the_floor_follow_from_the_times():
    ours = Played(contestants.TINYVIT["fast"], [1.0, 2.0, 4.0])
    theirs = Played(contestants.EAGER, [1.5, 3.0, 10.0])
    rates = [Played(contestants.PRODUCTS, [], [1e6, 5e6, 2e6]), Played(contestants.TORCH_PRODUCTS, [], [4e6, 1e6, 1e6])]
    result = result_of(TRAIN, [ours, theirs], rates)
    fast, torch = result["results"]
    assert fast["ratios"] == {"torch": 1.5} and fast["ratios_of_medians"] == {"torch": 1.5}
    assert torch["ratios"] == {"fast": pytest.approx(1 / 1.5)}
    assert result["floor"]["operations_per_second"] == 4e6
    assert result["floor"]["by_library"] == {"products": 2e6, "torch_products": 1e6}
    assert fast["of_floor"] == pytest.approx(2 * TRAIN.multiply_adds() / 4e6 / 2.0)
    assert fast["per_second"] == 1.5


def test_without_products_there_is_no_floor():
    result = result_of(TRAIN, [Played(contestants.TINYVIT["fast"], [1.0])])
    assert result["floor"]["seconds"] is None and result["results"][0]["of_floor"] is None


def test_contestants_that_did_not_do_the_same_work_are_named():
    assert disagreement({"a": 2.0, "b": 2.0001, "c": None}) is None
    assert disagreement({}) is None and disagreement({"a": 0.0, "b": 0.0}) is None
    assert disagreement({"a": 2.0, "b": 2.1}) == "not the same work: a got 2, b got 2.1"


def test_different_dropout_masks_are_not_reported_as_a_disagreement():
    drawing = replace(TRAIN, config=replace(CONFIG, drop_rate=0.1))
    players = [Played(contestants.EAGER, [1.0], second=1.0), Played(contestants.COMPILED, [1.0], second=2.0)]
    assert result_of(drawing, players)["disagreement"] is None
    assert "not the same work" in result_of(TRAIN, players)["disagreement"]


def test_a_worker_that_dies_is_reported_and_the_others_go_on(monkeypatch):
    begin = Player.begin

    def kill_one(player, case):
        if player.contestant.name == "reference":
            player.worker.process.kill()
        begin(player, case)

    monkeypatch.setattr(Player, "begin", kill_one)
    (result,) = run(small_settings(levels=("reference", "numpy")))
    dead, alive = result["results"]
    assert "killed" in dead["problem"] and dead["failed"] and dead["median"] is None and dead["seconds"] == [None, None]
    assert alive["problem"] is None and alive["median"] > 0 and alive["ratios"] == {"reference": None}
    assert json.dumps(result, allow_nan=False)


@pytest.mark.parametrize("stop", [KeyboardInterrupt, ValueError])
def test_no_process_is_left_when_a_run_is_aborted(monkeypatch, stop):
    players = []

    def broken_off():
        raise stop

    init = Player.__init__
    monkeypatch.setattr(Player, "__init__", lambda self, *args: players.append(self) or init(self, *args))
    with pytest.raises(stop):
        list(run(small_settings(), broken_off))
    assert len(players) == 2
    assert all(player.worker.process.returncode is not None for player in players)


def test_missing_torch_is_left_out_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(contestants, "find_spec", lambda name: None)
    playing, products, left_out = contestants.contestants(("numpy",), torch=True, compiled=True)
    assert [one.name for one in playing] == ["numpy"] and len(products) == 1
    assert left_out.keys() == {"torch", "compile"} and all("pip install torch" in why for why in left_out.values())


def test_torch_takes_part_where_it_is_installed_unless_switched_off(monkeypatch):
    monkeypatch.setattr(contestants, "find_spec", lambda name: name)
    playing, products, left_out = contestants.contestants(("numpy", "fast"), torch=True, compiled=True)
    assert [one.name for one in playing if one.plays(TRAIN)] == ["numpy", "fast", "torch", "compile"]
    assert [one.name for one in playing if one.plays(CONV)] == ["numpy", "fast", "torch", "channels_last", "compile"]
    assert len(products) == 2
    assert not left_out
    playing, products, left_out = contestants.contestants(("numpy",), torch=False, compiled=True)
    assert [one.name for one in playing] == ["numpy"] and len(products) == 1
    assert left_out == {"compile": "--compile needs --torch"}
