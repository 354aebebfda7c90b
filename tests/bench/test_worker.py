import sys
from itertools import islice

import pytest
from small_bench import ATTENTION, CONV, INFER, TRAIN

from tinyvit.bench import worker
from tinyvit.bench.run import Player, tinyvit_at
from tinyvit.bench.worker import error_line, memory


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_is_at_most_its_peak_and_none_where_the_system_does_not_report_it(monkeypatch, tmp_path):
    assert 1e6 < memory("VmRSS") <= memory("VmHWM")
    monkeypatch.setattr(worker, "PROC", tmp_path)
    assert memory("VmRSS") is None


@pytest.mark.parametrize(("error", "line"), [
    (ValueError("\n two\n lines"), "ValueError: two lines"), (KeyError(), "KeyError"),
    (RuntimeError("x" * 500), f"RuntimeError: {'x' * 95}…"),
])  # fmt: skip
def test_an_error_is_reported_in_one_line(error, line):
    assert error_line(error) == line


@pytest.mark.end_to_end
@pytest.mark.parametrize("case", [TRAIN, INFER, ATTENTION, CONV], ids=lambda case: case.kind)
def test_a_worker_warms_up_by_two_steps_and_computes_what_this_process_would(case):
    with Player(tinyvit_at("reference"), case, 1, turn=1e-9) as player:
        for _ in range(3):
            player.advance()
    _, second, (_, third, _) = islice(worker.progress(tinyvit_at("reference"), case, 1, 1e-9), 3)
    assert [player.answers[1], *player.values] == pytest.approx([second, third], rel=1e-5)
    before, _, (seconds, _, peak) = player.answers
    assert [seconds] == player.seconds and seconds > 0 and player.problem is None and 0 < before < peak


@pytest.mark.end_to_end
@pytest.mark.parametrize("reason", ["fails", "killed, as the system does when memory runs out"])
def test_a_player_that_fails_or_is_killed_has_no_more_turns_and_keeps_its_reason(reason):
    module, reason = ("steps", reason) if "killed" in reason else ("nowhere", "nowhere")
    with Player(tinyvit_at("reference")._replace(module=module), TRAIN, 1) as player:
        if module == "steps":
            player.process.kill()
        for _ in range(4):
            player.advance()
        player.process.join(30)
        assert not player.process.is_alive()
    assert reason in player.problem and player.answers == []
