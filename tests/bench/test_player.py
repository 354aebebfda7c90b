import subprocess
import sys

import pytest
from small_bench import ATTENTION, CONV, INFER, TRAIN

from tinyvit.bench import worker
from tinyvit.bench.player import TINYVIT, Player, take_turns
from tinyvit.bench.worker import Work, in_a_line, memory


class Listed:
    """A player that only records its turns."""

    def __init__(self, name, order):
        self.name, self.order = name, order

    def turn(self):
        self.order.append(self.name)


@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_every_player_has_one_turn_per_round_and_they_take_turns_to_start(rounds):
    order, ticks = [], []
    take_turns([Listed(name, order) for name in "abc"], rounds, after_turn=lambda: ticks.append(len(order)))
    assert ["".join(order[i : i + 3]) for i in range(0, len(order), 3)] == ["abc", "bca", "cab", "abc", "bca"][:rounds]
    assert ticks == list(range(1, 3 * rounds + 1))


def test_warming_up_takes_two_steps_at_least_and_reports_what_the_second_gave():
    work, values = Work(), iter((5.0, 3.0, 4.0))
    work.step = lambda: next(values)
    assert work.warm(seconds=0)[1] == 3.0 and next(values) == 4.0


@pytest.mark.parametrize("repeats", [1, 3])
def test_a_turn_takes_as_many_steps_as_it_was_told(repeats):
    work, steps = Work(), []
    work.step = lambda: steps.append(None) or float(len(steps))
    assert len(steps) == 0 and work.turn(repeats)[1] == repeats == len(steps)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_is_at_most_its_peak():
    assert 1e6 < memory("VmRSS") <= memory("VmHWM")


def test_memory_is_none_where_the_system_does_not_report_it(monkeypatch, tmp_path):
    monkeypatch.setattr(worker, "Path", lambda path: tmp_path / "status")
    assert memory("VmRSS") is None and (memory("VmHWM") is None or memory("VmHWM") > 1e6)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (MemoryError("9 GiB"), "out of memory; take a smaller --batch-size (MemoryError: 9 GiB)"),
        (RuntimeError("can't allocate memory: 9"),
         "out of memory; take a smaller --batch-size (RuntimeError: can't allocate memory: 9)"),
        (ValueError("\n two\n lines"), "ValueError: two lines"),
        (KeyError(), "KeyError"),
        (RuntimeError("x" * 500), f"RuntimeError: {'x' * 95}…"),
    ],
)  # fmt: skip
def test_an_error_is_reported_in_one_line(error, line):
    assert in_a_line(error) == line


# -- in a process of its own ------------------------------------------------------------------------------------------


@pytest.fixture
def player():
    with Player(TINYVIT["reference"], threads=1, precision="float64") as player:
        yield player


@pytest.mark.end_to_end
@pytest.mark.parametrize("case", [TRAIN, INFER, ATTENTION, CONV], ids=lambda case: case.kind)
def test_a_worker_computes_what_this_process_would(player, case):
    player.begin(case)
    player.warm(0)
    player.turn()
    player.finish()
    work = Work()
    work.prepare("steps", case, "float64", 1, {})
    assert player.second == pytest.approx(work.warm(0)[1], rel=1e-12)
    assert player.seconds[0] > 0 and player.repeats == 1 and player.problem is None and not player.died


@pytest.mark.end_to_end
def test_matrix_products_report_a_rate(player):
    player.begin(None)
    player.warm(0)
    assert player.second > 1e6


@pytest.mark.end_to_end
@pytest.mark.parametrize("precision", ["float15", "float64"])
def test_a_player_that_fails_or_is_killed_has_no_more_turns_and_keeps_its_reason(player, precision):
    player.precision = precision
    if precision == "float64":
        player.process.kill()
    for _ in range(2):
        player.begin(TRAIN)
        player.warm(0)
        player.turn()
        player.finish()
    reason = "unknown dtype 'float15'" if precision == "float15" else "killed, as the system does when memory runs out"
    assert reason in player.problem and player.died == (precision == "float64")
    assert player.seconds == [] and player.peak is None and player.process.returncode is not None


@pytest.mark.end_to_end
def test_a_worker_that_does_not_start_is_reported_with_its_last_line_of_stderr(tmp_path, monkeypatch):
    (tmp_path / "tinyvit").mkdir()
    (tmp_path / "tinyvit" / "__init__.py").write_text("raise ArithmeticError('torn')")
    monkeypatch.setattr("tinyvit.bench.player.tinyvit.__file__", str(tmp_path / "tinyvit" / "__init__.py"))
    with Player(TINYVIT["numpy"], 1, "float32") as player:
        player.begin(TRAIN)
        player.warm(0)
        assert player.problem == "its process ended with status 1: ArithmeticError: torn" and player.died


@pytest.mark.end_to_end
def test_a_worker_ends_with_its_input():
    ended = subprocess.run([sys.executable, "-m", "tinyvit.bench.worker"], input=b"", capture_output=True, timeout=60)
    assert ended.returncode == 0 and not ended.stdout
