import contextlib
import json
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from importlib import import_module

import pytest

from tinyvit.training import PRESETS, evaluate, resume, train
from tinyvit.training.checkpoints import Checkpoints
from tinyvit.training.display import Display
from tinyvit.training.signals import SIGNALS, stop_on_signals
from tinyvit.training.trained import load_trained

pytestmark = pytest.mark.end_to_end

CONFIG = replace(
    PRESETS["digits"], model=replace(PRESETS["digits"].model, embed_dim=16, depth=1),
    epochs=3, batch_size=220, device="cpu",
)  # fmt: skip  # 1,437 images: 6 steps an epoch
FIRST_EPOCH = "      1   "


@pytest.fixture
def start_training(tmp_path):
    """Starts `tinyvit train digits` with some options and waits until it has printed a line."""
    processes = []

    def start(awaited, *options, program=("-m", "tinyvit")):
        command = [sys.executable, *program, "train", "digits", "--out", str(tmp_path / "run"), *options]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        processes.append(process)
        for line in process.stdout:
            if line.startswith(awaited):
                return process
        raise AssertionError(process.stderr.read())

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def finish(process):
    """Wait for a process to end; returns its exit status, stdout and stderr."""
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


@pytest.mark.parametrize("number", sorted(SIGNALS))
def test_a_signal_ends_the_training_and_its_progress_is_saved(start_training, tmp_path, number):
    process = start_training(FIRST_EPOCH, "--epochs", "1000")
    process.send_signal(number)
    status, out, err = finish(process)
    assert (status, err) == (128 + number, "")
    assert "weights saved" in out
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["interrupted"] == 128 + number
    assert summary["epochs"] >= 1 and summary["steps"] > 0
    assert load_trained(tmp_path / "run", "cpu").config.epochs == 1000
    assert (tmp_path / "run" / "curves.png").exists()
    about, _ = Checkpoints(tmp_path / "run" / "checkpoints").newest(pytest.fail)
    assert about["step"] == summary["steps"] and f"tinyvit train --resume {tmp_path / 'run'}" in out


def test_a_signal_during_an_evaluation_does_not_wait_for_its_end(tmp_path, monkeypatch):
    class Interrupting(Display):
        steps = 0

        def step(self, *arguments):
            super().step(*arguments)
            self.steps += 1

    display = Interrupting()
    whole = train(CONFIG, tmp_path / "whole")

    def interrupted_evaluate(model, dataset, threads, stop):
        if display.steps == 12:  # the end of the second epoch
            signal.raise_signal(signal.SIGTERM)
        return evaluate(model, dataset, threads, stop=stop)

    monkeypatch.setattr(import_module("tinyvit.training.tasks.classification"), "evaluate", interrupted_evaluate)
    summary = train(CONFIG, tmp_path / "run", display)
    assert (summary["interrupted"], summary["epochs"], summary["steps"]) == (143, 1, 12)
    display.steps = 0
    assert resume(tmp_path / "run")["test_loss"] == whole["test_loss"]
    rows = [(tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("run", "whole")]
    for row, expected in zip(*(map(json.loads, lines) for lines in rows), strict=True):
        timeless = {"seconds": 0, "data_wait": 0}
        assert {**row, **timeless} == {**expected, **timeless}
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "whole")]
    assert weights[0] == weights[1]


STEP_WITHOUT_END = """
import time
from tinyvit import cli
from tinyvit.training import loop
def train_step(**arguments):
    print("in a step", flush=True)
    time.sleep(600)
loop.train_step = train_step
cli.main()
"""


def test_a_second_signal_ends_the_training_at_once(start_training, tmp_path):
    process = start_training("in a step", program=["-c", STEP_WITHOUT_END])
    for _ in range(30):  # two that come before Python handles the first are one to it
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=1)
            break
    assert finish(process)[::2] == (130, "tinyvit: interrupted\n")
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_nohup_protects_a_training_from_sighup():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_signals() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert not stop
    finally:
        signal.signal(signal.SIGHUP, before)


def test_after_the_training_the_signals_are_handled_as_before():
    before = [signal.getsignal(number) for number in SIGNALS]
    with stop_on_signals():
        assert [signal.getsignal(number) for number in SIGNALS] != before
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_a_training_outside_the_main_thread_leaves_the_signals_alone():
    seen = []

    def run():
        with stop_on_signals() as stop:
            seen.append(bool(stop))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [False]
