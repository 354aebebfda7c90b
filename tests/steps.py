"""A step of a `Trainer`, as the training loop takes it, and trainings that are stopped."""

import json
import re

from tinyvit.training import train_step
from tinyvit.training.display import Display


class Killed(BaseException):
    """Has the effect of SIGKILL on the files on disk: after it, files are closed and nothing else runs."""


class StopsAfter(Display):
    """Ends a training after this many steps of the process, by Ctrl-C or another error."""

    def __init__(self, steps, error=KeyboardInterrupt):
        self.steps, self.error = steps, error

    def step(self, *arguments):
        super().step(*arguments)
        self.steps -= 1
        if self.steps == 0:
            raise self.error


def outcome(path):
    """All that must be equal in the end: weights, the last checkpoint, and the metrics without their times."""
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        del row["seconds"], row["data_wait"]
    files = (path / "checkpoints").glob("step-*.safetensors")
    last = max(files, key=lambda file: [int(number) for number in re.findall(r"\d+", file.name)])
    return (path / "model.safetensors").read_bytes(), last.name, last.read_bytes(), rows


def advance(trainer, batch):
    """Train on a batch of the trainer's loader; returns the StepResult."""
    step = trainer.next_step(*batch)
    result = train_step(step["model"], **{name: value for name, value in step.items() if name != "model"})
    trainer.finish_step(step, result)
    return result
