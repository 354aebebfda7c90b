import sys

import pytest
from small_bench import ATTENTION, CONV, INFER, TRAIN

from tinyvit.bench import worker
from tinyvit.bench.player import TINYVIT, Player
from tinyvit.bench.worker import in_a_line, memory


@pytest.mark.parametrize("repeats", [1, 3])
def test_a_turn_takes_as_many_steps_as_it_was_told_and_warming_up_at_least_two(repeats):
    steps = []
    state = {"step": lambda: steps.append(None) or float(len(steps))}
    assert worker.turn(state, repeats)[1] == repeats == len(steps)
    steps.clear()
    assert worker.warm(state, 0)[1] == 2.0 == len(steps)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_is_at_most_its_peak_and_none_where_the_system_does_not_report_it(monkeypatch, tmp_path):
    assert 1e6 < memory("VmRSS") <= memory("VmHWM")
    monkeypatch.setattr(worker, "Path", lambda path: tmp_path / "status")
    assert memory("VmRSS") is None


@pytest.mark.parametrize(("error", "line"), [
    (ValueError("\n two\n lines"), "ValueError: two lines"), (KeyError(), "KeyError"),
    (RuntimeError("x" * 500), f"RuntimeError: {'x' * 95}…"),
])  # fmt: skip
def test_an_error_is_reported_in_one_line(error, line):
    assert in_a_line(error) == line


@pytest.fixture
def player():
    with Player(TINYVIT["reference"], threads=1) as player:
        yield player


@pytest.mark.end_to_end
def test_a_worker_computes_what_this_process_would(player):
    for case in (TRAIN, INFER, ATTENTION, CONV):
        player.begin(case)
        player.warm(0)
        player.turn()
        player.finish()
        state = {}
        worker.prepare(state, "steps", case, 1, {})
        assert player.second == pytest.approx(worker.warm(state, 0)[1], rel=1e-5)
        assert player.seconds[0] > 0 and player.repeats == 1 and player.problem is None
    player.begin(None)
    player.warm(0)
    assert player.second > 1e6, "a rate of matrix products"


@pytest.mark.end_to_end
@pytest.mark.parametrize("reason", ["fails", "killed, as the system does when memory runs out"])
def test_a_player_that_fails_or_is_killed_has_no_more_turns_and_keeps_its_reason(player, reason):
    if "killed" in reason:
        player.process.kill()
    else:
        player.contestant, reason = player.contestant._replace(module="nowhere"), "nowhere"
    for _ in range(2):
        player.begin(TRAIN)
        player.warm(0)
        player.turn()
        player.finish()
    assert reason in player.problem and player.seconds == [] and player.peak is None
    assert not player.process.is_alive()
