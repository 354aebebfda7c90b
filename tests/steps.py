"""A step of a `Trainer`, as the training loop takes it."""

from tinyvit.training import train_step


def advance(trainer, batch):
    """Train on a batch of the trainer's loader; returns the StepResult."""
    step = trainer.next_step(*batch)
    result = train_step(step["model"], **{name: value for name, value in step.items() if name != "model"})
    trainer.finish_step(step, result)
    return result
