import numpy as np
import pytest
from small_bench import ATTENTION, INFER, TRAIN

from tinyvit.bench import memory
from tinyvit.bench.cases import to_dict
from tinyvit.bench.contestants import TINYVIT
from tinyvit.bench.processes import Worker, WorkerFailed
from tinyvit.bench.worker import Work, in_a_line

pytestmark = pytest.mark.end_to_end


def prepared(case, work="tinyvit"):
    worker = Work()
    worker.prepare(work, to_dict(case), "float64", 1)
    return worker


@pytest.mark.parametrize("case", [TRAIN, INFER, ATTENTION], ids=lambda case: case.kind)
def test_two_workers_with_the_same_work_get_the_same_number(case):
    answers = [prepared(case).warm(seconds=0) for _ in range(2)]
    assert answers[0]["value"] == answers[1]["value"]
    assert all(answer["seconds"] > 0 for answer in answers)


def test_warming_up_takes_two_steps_at_least_and_reports_the_loss_after_one():
    worker, losses = prepared(TRAIN), []
    step = worker.step
    worker.step = lambda: losses.append(step()) or losses[-1]
    assert worker.warm(seconds=0)["value"] == losses[1] != losses[0]
    assert len(losses) == 2


@pytest.mark.parametrize("repeats", [1, 3])
def test_a_turn_takes_as_many_steps_as_it_was_told_and_gives_the_time_of_one(repeats):
    worker, steps = Work(), []
    worker.step = lambda: steps.append(None) or float(len(steps))
    answer = worker.turn(repeats)
    assert len(steps) == repeats == answer["value"]


def test_matrix_products_report_a_rate():
    assert prepared(ATTENTION, "products").step() > 0


def test_memory_is_known_on_linux_and_at_most_the_peak():
    if memory.STATUS.exists():
        assert 1e6 < memory.resident() <= memory.peak()


def test_memory_is_none_where_the_system_does_not_report_it(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "STATUS", tmp_path / "status")
    assert memory.resident() is None
    assert memory.peak() is None or memory.peak() > 1e6


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (MemoryError("9 GiB are too many"), "out of memory; take a smaller --batch-size (9 GiB are too many)"),
        (RuntimeError("[enforce fail at x.cpp:1] . DefaultCPUAllocator: can't allocate memory: you tried 9 bytes"),
         "out of memory; take a smaller --batch-size (can't allocate memory: you tried 9 bytes)"),
        (ValueError("\n two\n lines"), "ValueError: two"),
        (KeyError(), "KeyError"),
        (RuntimeError("x" * 500), f"RuntimeError: {'x' * 95}…"),
    ],
)  # fmt: skip
def test_an_error_is_reported_in_one_line(error, line):
    assert in_a_line(error) == line


# -- in a process of its own ------------------------------------------------------------------------------------------


@pytest.fixture
def worker():
    with Worker(TINYVIT["reference"].environment(threads=1)) as worker:
        yield worker


def ask_to_prepare(worker, case=TRAIN, **changes):
    return worker.ask("prepare", **dict(work="tinyvit", case=to_dict(case), precision="float64", threads=1) | changes)


def test_a_worker_computes_what_this_process_would(worker):
    assert ask_to_prepare(worker)["before"] is None or memory.STATUS.exists()
    answer = worker.ask("warm", seconds=0)
    np.testing.assert_allclose(answer["value"], prepared(TRAIN).warm(seconds=0)["value"], rtol=1e-12)
    assert worker.ask("turn", repeats=2)["seconds"] > 0
    assert worker.ask("peak").keys() == {"peak"}


def test_a_worker_that_cannot_carry_out_a_command_says_why_and_goes_on(worker):
    with pytest.raises(WorkerFailed, match="ValueError: unknown dtype 'float15'") as failed:
        ask_to_prepare(worker, precision="float15")
    assert not failed.value.died
    assert ask_to_prepare(worker).keys() == {"before"}


def test_a_worker_whose_caller_has_gone_ends_even_in_the_middle_of_its_work(worker):
    worker.tell("prepare", work="tinyvit", case=to_dict(TRAIN), precision="float64", threads=1)
    worker.answer()
    worker.tell("warm", seconds=1000)
    worker.process.stdin.close()
    assert worker.process.wait(timeout=30) == 0


def test_leaving_the_block_ends_a_worker_at_once():
    with Worker(TINYVIT["reference"].environment(threads=1)) as worker:
        worker.tell("warm", seconds=1000)
    assert worker.process.returncode < 0
    worker.kill()  # once more does no harm


def test_a_worker_that_was_killed_is_reported_as_such(worker):
    worker.process.kill()
    with pytest.raises(WorkerFailed, match="killed, as the system does when memory runs out") as failed:
        ask_to_prepare(worker)
    assert failed.value.died


def test_a_worker_that_does_not_start_is_reported_with_its_last_line_of_stderr(tmp_path):
    (tmp_path / "tinyvit").mkdir()
    (tmp_path / "tinyvit" / "__init__.py").write_text("raise ArithmeticError('torn')")
    environment = TINYVIT["reference"].environment(threads=1) | {"PYTHONPATH": str(tmp_path)}
    with Worker(environment) as worker, pytest.raises(WorkerFailed, match="status 1: ArithmeticError: torn") as failed:
        worker.ask("peak")
    assert failed.value.died


def test_a_worker_finds_its_threads_and_kernels_in_the_environment():
    environment = TINYVIT["numpy"].environment(threads=3)
    assert environment["TINYVIT_KERNELS"] == "numpy"
    assert {environment[name] for name in ("TINYVIT_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")} == {"3"}
