"""The recipe cifar10, trained with as many epochs as fit into the time, as CUDA graphs where that is faster."""

import math
import time
from dataclasses import replace

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
    config = replace(recipe, device=options.device, precision=options.precisions[0], data_dir=options.data_dir)
    seconds_of = {}  # a step, as a CUDA graph or not
    for graph in (False,) if options.device == "cpu" else (False, True):
        trial = Trainer(replace(config, cuda_graph=graph))
        seconds_of[graph] = seconds_of_a_step(trial, options.device)
    graph = min(seconds_of, key=seconds_of.get)
    step, steps = seconds_of[graph], len(trial.loader)
    fitting = math.floor(SPARE * (seconds - (time.perf_counter() - started)) / (step * steps))
    if fitting < 1:
        raise ValueError(f"an epoch takes about {step * steps:.0f} s, longer than the {max(seconds, 0):.0f} s left")
    count = min(1 if options.quick else DIGITS if options.dry_run else recipe.epochs, fitting)
    trainer = Trainer(replace(config, cuda_graph=graph, epochs=count, evaluate_every=max(1, count // 5)))
    begun = time.perf_counter()
    rows = list(epochs(trainer, begun))
    return {
        "epochs": count, "epochs_of_the_recipe": recipe.epochs, "precision": config.precision, "graph": graph,
        "history": rows, "images_per_second": trainer.step * config.batch_size / (time.perf_counter() - begun),
    }  # fmt: skip


def lines(result):
    """The result as text."""
    return [
        f"{result['epochs']} of the recipe's {result['epochs_of_the_recipe']} epochs in {result['precision']}"
        f"{' as CUDA graphs' if result['graph'] else ''}, "
        f"{result['images_per_second']:,.0f} images/s with augmentation and evaluations",
        *(f"epoch {row['epoch']:>4}  {100 * row['test_accuracy']:.2f} %  loss {row['test_loss']:.4f}  "
          f"{row['seconds']:.0f} s" for row in result["history"]),
    ]  # fmt: skip


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
