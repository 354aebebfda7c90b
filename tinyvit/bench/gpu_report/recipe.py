"""The recipe cifar10, trained with as many epochs as fit into the time, on a GPU as CUDA graphs."""

import time
from dataclasses import replace
from functools import partial
from itertools import islice

from tinyvit.bench.gpu_report.times import seconds_of
from tinyvit.training import preset, train_step
from tinyvit.training.trainer import Trainer

TRIAL_STEPS = 20     # timed, to estimate an epoch
WARM_UP_STEPS = 10   # before them: the first step that mixes images, and the first that erases, compile kernels
USED_FRACTION = 0.9  # of the time; the rest is for evaluations and slower moments
DRY_RUN_EPOCHS = 3


def run(options, seconds):
    """Accuracy and loss on the test images, with the time: a dict, and as text."""
    recipe, started = preset("digits" if options.dry_run else "cifar10"), time.perf_counter()
    config = replace(recipe, device=options.device, precision=options.precisions[0], data_dir=options.data_dir)
    trial = Trainer(config)
    take_steps(trial, WARM_UP_STEPS)
    trying = seconds_of(partial(take_steps, trial, TRIAL_STEPS), config.device, 1)
    epoch = len(trial.loader) * trying / (trial.step - WARM_UP_STEPS)
    left = seconds - (time.perf_counter() - started)
    if USED_FRACTION * left < epoch:
        raise ValueError(f"an epoch takes about {epoch:.0f} s, longer than the {max(left, 0):.0f} s left")
    wanted = 1 if options.quick else DRY_RUN_EPOCHS if options.dry_run else recipe.epochs
    count = min(wanted, int(USED_FRACTION * left / epoch))
    trainer = Trainer(replace(config, epochs=count, evaluate_every=max(1, count // 5)))
    begun, history = time.perf_counter(), []
    while not trainer.finished:
        take_steps(trainer)
        if (trainer.epoch + 1) % trainer.config.evaluate_every == 0 or trainer.epoch + 1 == count:
            history.append(trainer.row(trainer.evaluate(), time.perf_counter() - begun))
        trainer.end_epoch()
    speed = trainer.step * config.batch_size / history[-1]["seconds"]
    result = {"epochs": count, "precision": config.precision, "history": history, "images_per_second": speed}
    return result, [
        f"{count} of the recipe's {recipe.epochs} epochs in {config.precision}, "
        f"{speed:,.0f} images/s with augmentation and evaluations",
        *(f"epoch {row['epoch']:>4}  {100 * row['test_accuracy']:.2f} %  loss {row['test_loss']:.4f}  "
          f"{row['seconds']:.0f} s" for row in history),
    ]  # fmt: skip


def take_steps(trainer, most=None):
    """Take the steps that are left of an epoch, or so many of them, as the training loop takes them."""
    for batch in islice(trainer.batches(), most):
        step = trainer.next_step(*batch)
        trainer.finish_step(step, train_step(**step))
