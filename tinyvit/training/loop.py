"""The training loop."""

import json
import platform
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

import tinyvit
from tinyvit import data, optim
from tinyvit.backend import Key, choose_device
from tinyvit.models import ViT
from tinyvit.models.vit import as_pair
from tinyvit.nn import Context
from tinyvit.training.display import Display
from tinyvit.training.evaluate import evaluate
from tinyvit.training.preprocessing import Preprocessing
from tinyvit.training.run_folder import RunFolder, next_free, save_tensors, write
from tinyvit.training.signals import stop_on_signals
from tinyvit.training.step import classification, train_step
from tinyvit.training.threads import thread_count


def train(config, out=None, display=None, name=None):
    """Train as `config` (a `TrainConfig`) says, into the folder `out`; returns the summary, a dict.

    `out` is config.out, or the first free folder of runs/NAME, runs/NAME-2, …, where `name` is the data set's unless
    given. A SIGINT or SIGTERM ends the training after the step at hand, with what was reached so far saved. The summary
    then has "interrupted", the signal's exit status, and no test accuracy if steps followed the last evaluation.

    Raises ValueError for data that can't be read or don't fit the model, and for a folder that holds a run.
    """
    display = Display() if display is None else display
    if config.data_dir is not None:  # so that the run can be evaluated from any folder
        config = replace(config, data_dir=str(Path(config.data_dir).expanduser().resolve()))
    split = data.load(config.dataset, config.data_dir, config.model.img_size, config.model.in_chans)
    check_fit(config, split.train)
    device, reason = choose_device(config.device)
    threads = thread_count(config.threads)

    model = ViT(config.model, config.seed, config.precision, device)
    o = config.optim
    optimizer = optim.AdamW(model, o.lr, o.betas, weight_decay=o.weight_decay)
    objective = classification(o.label_smoothing)
    loader = data.Loader(
        split.train, config.batch_size, shuffle=True, crop=config.augment.crop, flip=config.augment.flip,
        seed=config.seed, dtype=config.precision, device=device,
    )  # fmt: skip
    total_steps = config.epochs * len(loader)
    schedule, warmup = optim.SCHEDULES[o.schedule], round(o.warmup * total_steps)

    # Made last, when all else is in order.
    folder = RunFolder(out or config.out or next_free(f"runs/{name or config.dataset}"))
    # A loss that overflows is noticed and said below, not warned of by every operation on the way.
    with folder.started(config), stop_on_signals() as stop, np.errstate(all="ignore"):
        write(folder.preprocessing, Preprocessing.from_dataset(split.train).to_json().encode())
        display.start(config, model, split, folder.path, device, reason, threads, total_steps)
        started = time.perf_counter()
        step, history = 0, []
        for epoch in range(config.epochs):
            train_loss = train_accuracy = 0
            epoch_started = time.perf_counter()
            for images, targets in loader.epoch(epoch):
                if stop:
                    break
                optimizer.lr = o.lr * schedule(step, total_steps, warmup)
                ctx = Context(training=True, key=Key(config.seed, step))
                result = train_step(
                    model, optimizer, images, targets, ctx,
                    objective=objective, clip_norm=o.clip_norm, threads=config.threads,
                )  # fmt: skip
                step += 1
                train_loss, train_accuracy = train_loss + result.loss, train_accuracy + result.metrics["accuracy"]
                display.step(epoch, len(images), result)
            if stop:
                break
            scores = evaluate(model, split.test, config.threads)
            if not np.isfinite([float(train_loss), scores["loss"]]).all():
                raise ValueError(
                    f"the training diverged: the loss is no number after epoch {epoch + 1}; take a lower optim.lr"
                    + (f" (the epoch before is in {folder.checkpoint})" if history else "")
                )
            row = {
                "epoch": epoch + 1,
                "step": step,
                "lr": optimizer.lr,
                "train_loss": float(train_loss) / len(loader),
                "train_accuracy": float(train_accuracy) / len(loader),
                "test_loss": scores["loss"],
                "test_accuracy": scores["accuracy"],
                "seconds": time.perf_counter() - started,
                "epoch_seconds": time.perf_counter() - epoch_started,
            }
            history.append(row)
            folder.add_metrics(row)
            save_checkpoint(folder.checkpoint, model, optimizer)
            display.epoch(row)

        # The loop's end, or a signal's: what was reached is saved either way.
        save_tensors(folder.model, model.state_dict())
        # The last scores are those of the saved weights, unless steps were taken since.
        scores = history[-1] if history and history[-1]["step"] == step else {}
        summary = {
            "test_accuracy": scores.get("test_accuracy"),
            "test_loss": scores.get("test_loss"),
            "epochs": len(history),
            "steps": step,
            "seconds": time.perf_counter() - started,
            "parameters": model.num_parameters(),
            "dataset": config.dataset,
            "device": device,
            "threads": threads,
            "versions": versions(),
        }
        if len(history) < config.epochs:
            summary["interrupted"] = stop.exit_status
        write(folder.summary, (json.dumps(summary, indent=2) + "\n").encode())
        if history:
            from tinyvit.training.curves import draw_curves

            draw_curves(history, folder.curves)
        display.finish(summary, folder.path)
    return summary


def check_fit(config, dataset):
    """Raise ValueError unless the model can read the images and name the classes, and a crop leaves some of them."""
    model, crop = config.model, config.augment.crop
    shape = (model.in_chans, *as_pair(model.img_size))
    if dataset.images.shape[1:] != shape:
        raise ValueError(
            f"the model reads images {shape}, but the data set's are {dataset.images.shape[1:]} "
            "(channels, height, width); set model.in_chans and model.img_size"
        )
    if crop >= min(shape[1:]):
        raise ValueError(f"augment.crop shifts images of {shape[1]}×{shape[2]} by up to {crop} pixels; take fewer")
    if model.num_classes != len(dataset.classes):
        raise ValueError(
            f"the model has {model.num_classes} classes, but the data set has {len(dataset.classes)}; "
            "set model.num_classes"
        )


def save_checkpoint(path, model, optimizer):
    """Everything that the next step depends on besides the configuration: weights, moments, step."""
    tensors = {f"model.{name}": array for name, array in model.state_dict().items()}
    tensors |= {f"optimizer.{name}": array for name, array in optimizer.state_dict().items()}
    save_tensors(path, tensors)


def versions():
    """What the run was computed with."""
    return {"tinyvit": tinyvit.__version__, "python": platform.python_version(), "numpy": np.__version__}
