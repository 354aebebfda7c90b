"""A function that never returns is stopped, wherever it was called from."""

import os
import signal
import threading
import time

import nbformat
import pytest
from nbclient import NotebookClient

import tinyvit
from tinyvit import exercises, kernels
from tinyvit.exercises.calling import MAX_PRINTED_CHARACTERS, TimeLimitExceeded, call, stop_thread


def endless(x):
    while True:
        x = x + 1


def stubborn(x):
    while True:
        try:
            x = x + 1
        except BaseException:  # this also catches the exception that should end it
            x = 0


def running():
    return [thread for thread in threading.enumerate() if thread.name == "tinyvit exercise"]


@pytest.mark.parametrize("function", [endless, stubborn])
def test_an_endless_loop_is_ended_and_its_line_is_shown(function):
    report = exercises.check("softmax", function, time_limit=0.2)
    assert not running()
    answer = " ".join(report.answer.split())
    assert not report and "It did not return: it was still at line" in answer and "after 0.2 seconds" in answer


def test_nothing_is_raised_in_a_thread_that_has_left_the_function_and_takes_its_time_to_end():
    raised = []

    def run():
        try:
            endless(1)
        except TimeLimitExceeded:
            raised.append("in the function")
        try:
            deadline = time.monotonic() + 0.3
            while time.monotonic() < deadline:
                pass
        except TimeLimitExceeded:
            raised.append("after it")

    thread = threading.Thread(target=run)
    thread.start()
    stop_thread(thread, endless)
    thread.join(5)
    assert raised == ["in the function"]


def test_a_blocking_call_is_abandoned_after_the_limit():
    free = threading.Event()
    report = exercises.check("softmax", lambda x: free.wait(), time_limit=0.2)
    assert "It did not return" in report.answer and len(running()) == 1
    free.set()
    running()[0].join(5)
    assert not running()


def test_an_endless_loop_that_prints_fills_no_memory():
    def talks(x):
        while True:
            print("still here")

    ended = call(talks, (1,), 0.2)
    assert ended.out_of_time and ended.printed.startswith("still here\nstill here")
    assert len(ended.printed) == MAX_PRINTED_CHARACTERS


def test_ctrl_c_ends_the_function_and_the_check():
    def interrupts(x):
        os.kill(os.getpid(), signal.SIGINT)
        endless(x)

    with pytest.raises(KeyboardInterrupt):
        exercises.check("softmax", interrupts, time_limit=5)
    assert not running()


def test_output_is_redirected_only_during_the_call(capsys):
    exercises.check("softmax", endless, time_limit=0.1)
    capsys.readouterr()
    print("after")
    assert capsys.readouterr().out == "after\n"


def test_a_function_runs_under_the_level_of_kernels_that_is_in_force():
    with tinyvit.reference():
        assert call(lambda: kernels.level(), (), 1).value == "reference"


CELLS = [
    "from tinyvit import exercises\nimport threading",
    "def endless(x):\n    while True:\n        x = x + 1",
    "report = exercises.check('softmax', endless, time_limit=0.5)",
    "print(report.right, [t.name for t in threading.enumerate() if t.name == 'tinyvit exercise'])",
]


@pytest.mark.end_to_end
def test_an_endless_loop_in_a_notebook_is_ended_and_the_next_cell_runs():
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    *_, checked, after = (output["text"] for cell in notebook.cells for output in cell.outputs)
    assert ("it was still at line" in checked and "(while True:)" in checked) or "(x = x + 1)" in checked
    assert after == "False []\n"
