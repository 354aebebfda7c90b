"""The recipe cifar10, trained with as many epochs as fit into the time, on a GPU as CUDA graphs."""

import math
import time
from dataclasses import replace
from itertools import islice

from tinyvit.bench.gpu_report.times import synchronize
from tinyvit.training import preset, train_step
from tinyvit.training.trainer import Trainer

TRIAL = 20          # steps that tell how long one takes
WARM = 10           # steps before them: the first to mix, and the first to cut, compile kernels; chance says which
SPARE = 0.9         # of the time, so that evaluations and a slower moment fit, too
DIGITS = 3          # epochs of a dry run


def run(options, seconds):
    """Accuracy and loss on the test images, with the time."""
    recipe, started = preset("digits" if options.dry_run else "cifar10"), time.perf_counter()
    config = replace(recipe, device=options.device, precision=options.precisions[0], data_dir=options.data_dir,
                     cuda_graph=options.device != "cpu")  # fmt: skip
    trial = Trainer(config)
    take_steps(trial, WARM)
    synchronize(config.device)
    begun = time.perf_counter()
    take_steps(trial, TRIAL)
    synchronize(config.device)
    epoch = len(trial.loader) * (time.perf_counter() - begun) / (trial.step - WARM)
    fitting = math.floor(SPARE * (seconds - (time.perf_counter() - started)) / epoch)
    if fitting < 1:
        raise ValueError(f"an epoch takes about {epoch:.0f} s, longer than the {max(seconds, 0):.0f} s left")
    count = min(1 if options.quick else DIGITS if options.dry_run else recipe.epochs, fitting)
    trainer = Trainer(replace(config, epochs=count, evaluate_every=max(1, count // 5)))
    begun, history = time.perf_counter(), []
    while not trainer.finished:
        take_steps(trainer)
        if (trainer.epoch + 1) % trainer.config.evaluate_every == 0 or trainer.epoch + 1 == count:
            history.append(trainer.row(trainer.evaluate(), time.perf_counter() - begun))
        trainer.end_epoch()
    return {
        "epochs": count, "epochs_of_the_recipe": recipe.epochs, "precision": config.precision, "history": history,
        "images_per_second": trainer.step * config.batch_size / (time.perf_counter() - begun),
    }  # fmt: skip


def take_steps(trainer, most=None):
    """Take the steps that are left of an epoch, or so many of them, as the training loop takes them."""
    for batch in islice(trainer.batches(), most):
        step = trainer.next_step(*batch)
        trainer.finish_step(step, train_step(**step))


def lines(result):
    """The result as text."""
    return [
        f"{result['epochs']} of the recipe's {result['epochs_of_the_recipe']} epochs in {result['precision']}, "
        f"{result['images_per_second']:,.0f} images/s with augmentation and evaluations",
        *(f"epoch {row['epoch']:>4}  {100 * row['test_accuracy']:.2f} %  loss {row['test_loss']:.4f}  "
          f"{row['seconds']:.0f} s" for row in result["history"]),
    ]  # fmt: skip
