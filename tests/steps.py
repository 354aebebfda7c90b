"""A step of a `Trainer`, as the training loop takes it, and trainings that are stopped."""

from tinyvit.training import train_step
from tinyvit.training.display import Display


class StopsAfter(Display):
    """Ends a training by Ctrl-C after some steps."""

    def __init__(self, steps):
        self.steps = steps

    def step(self, *arguments):
        self.steps -= 1
        if self.steps == 0:
            raise KeyboardInterrupt


def advance(trainer, batch):
    """Train on a batch of the trainer's loader; returns the StepResult."""
    step = trainer.next_step(*batch)
    result = train_step(step["model"], **{name: value for name, value in step.items() if name != "model"})
    trainer.finish_step(step, result)
    return result
