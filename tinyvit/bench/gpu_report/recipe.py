"""The recipe cifar10, trained with as many epochs as fit into the time."""

import math
import time
from dataclasses import replace

from tinyvit.bench.gpu_report.card import synchronize
from tinyvit.training import preset, train_step
from tinyvit.training.trainer import Trainer

TRIAL = 20          # steps that tell how long one takes
WARM = 10           # steps before them: the first to mix, and the first to cut, compile kernels; chance says which
SPARE = 0.9         # of the time, so that evaluations and a slower moment fit, too
DIGITS = 3          # epochs of a dry run


def run(settings, seconds, keep=lambda result: None):
    """Accuracy and loss on the test images, with time and memory; `keep` gets the results after each evaluation."""
    recipe = preset("digits" if settings.dry_run else "cifar10")
    config = replace(recipe, device=settings.device, precision=settings.train_precision, data_dir=settings.data_dir)
    asked = 1 if settings.quick else DIGITS if settings.dry_run else recipe.epochs
    started = time.perf_counter()
    trial = Trainer(config)
    step = seconds_of_a_step(trial, settings.device)
    steps = len(trial.loader)
    fitting = math.floor(SPARE * (seconds - (time.perf_counter() - started)) / (step * steps))
    if fitting < 1:
        return {"problem": f"an epoch takes about {step * steps:.0f} s, longer than the {max(seconds, 0):.0f} s left"}
    config = replace(config, epochs=min(asked, fitting))
    trainer = Trainer(replace(config, evaluate_every=max(1, config.epochs // 5)))
    begun, rows = time.perf_counter(), []
    for row in epochs(trainer, begun):
        rows.append(row)
        taken = time.perf_counter() - begun
        result = {
            "epochs": config.epochs,
            "epochs_of_the_recipe": recipe.epochs,
            "precision": config.precision,
            "batch_size": config.batch_size,
            "parameters": trainer.model.num_parameters(),
            "test_accuracy": row["test_accuracy"],
            "test_loss": row["test_loss"],
            "training_seconds": taken,
            "images_per_second": trainer.step * config.batch_size / taken,
            "skipped_steps": row["skipped_steps"],
            "history": rows,
        }
        keep(result)
    return result


def seconds_of_a_step(trainer, device):
    """The mean time of a batch and its step, queued as a training queues them; the first ones don't count.

    The trainer has then trained, and another one must begin.
    """
    steps = endless(trainer)
    for _ in range(WARM):
        next(steps)
    synchronize(device)
    begun = time.perf_counter()
    for _ in range(TRIAL):
        next(steps)
    synchronize(device)
    return (time.perf_counter() - begun) / TRIAL


def take_step(trainer, batch):
    """One step, as the training loop takes it; returns the StepResult."""
    step = trainer.next_step(*batch)
    result = train_step(**step)
    trainer.finish_step(step, result)
    return result


def endless(trainer):
    """The steps of the first epoch, repeated endlessly."""
    while True:
        for batch in trainer.batches():
            yield take_step(trainer, batch)
        trainer.batch = 0


def epochs(trainer, begun):
    """Train, and yield the metrics of each evaluation."""
    config = trainer.config
    while not trainer.finished:
        for batch in trainer.batches():
            take_step(trainer, batch)
        if (trainer.epoch + 1) % config.evaluate_every == 0 or trainer.epoch + 1 == config.epochs:
            yield trainer.row(trainer.evaluate(), time.perf_counter() - begun)
        trainer.end_epoch()
