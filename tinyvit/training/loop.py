"""The training loop, from a configuration or a stopped run to a finished run folder."""

import platform
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace

import numpy as np

import tinyvit
from tinyvit.backend import gpu
from tinyvit.data.preprocessing import Preprocessing
from tinyvit.levels import using
from tinyvit.models.architecture import image_shape
from tinyvit.training.config import to_json
from tinyvit.training.curves import draw_curves
from tinyvit.training.display import Display, SilentDisplay
from tinyvit.training.distributed import join_ranks
from tinyvit.training.divergence import Diverged
from tinyvit.training.memory import freed_memory_kept, give_back_freed_memory
from tinyvit.training.memory_needs import raise_if_out_of_memory
from tinyvit.training.run_folder import RunFolder, next_free
from tinyvit.training.signals import stop_on_signals
from tinyvit.training.step import train_step
from tinyvit.training.tasks import task_class
from tinyvit.training.trainer import Trainer


def train(config, out=None, display=None, name=None):
    """Train as `config` (a `TrainConfig`) says, into the folder `out`; returns the summary, a dict.

    `out` is config.out, or the first free folder of runs/NAME, runs/NAME-2, …, where `name` is the data set's unless
    given. SIGINT, SIGTERM or SIGHUP ends the training after the current step and saves its progress. The summary
    then has "interrupted", the signal's exit status, and no scores if steps followed the last evaluation.

    Operations run at the level config.kernels, or else at the current one.

    Raises ValueError for data that can't be read or don't fit the model, for a folder that holds a run, for kernels
    that can't be used, and for a training that diverges; OutOfMemory, which says what would fit, where there is too
    little memory: before anything is written, if that is foreseen.
    """
    with using(config.kernels), join_ranks(config.distributed) as ranks:
        display = (display or Display()) if ranks.leads else SilentDisplay()
        trainer = Trainer(config, ranks=ranks)
        trainer.check_ranks()
        place = out or config.out or f"runs/{name or config.dataset}"
        refuse_among_images(place, trainer.config)
        # Made last, after all checks.
        folder = RunFolder(ranks.first(lambda: out or config.out or str(next_free(place))))
        with ranks.hold(folder.start(trainer.config)):
            return run(trainer, folder, display)


def resume(path, display=None, **changes):
    """Resume the run in the folder `path` from its newest checkpoint; returns the summary, a dict.

    Parameters, moments, moving average, schedule, random streams and logged losses are bit for bit those of a run that
    was never stopped, on the same machine with the same number of threads and the same kernels. Without a checkpoint
    the run starts afresh; a finished one isn't changed. `changes` are fields of the configuration: device, threads,
    kernels, data_dir, distributed.

    Raises ValueError if `path` isn't a run, is in use, or has only damaged checkpoints; OutOfMemory as `train` does.
    """
    folder = RunFolder(path)
    with join_ranks(changes.get("distributed", "auto")) as ranks:
        display = (display or Display()) if ranks.leads else SilentDisplay()
        config = ranks.first(folder.read_config)
        config = replace(config, cuda_graph=config.cuda_graph and "auto", **changes)  # with which it has the same bits
        with using(config.kernels), ranks.hold(folder.resume()):
            task = task_class(config.task)(config)
            summary = ranks.first(folder.finished)
            if summary is not None:
                if summary.get("config") not in (None, ranks.first(folder.digest)):
                    raise ValueError(f"{path} is finished, and its config.json isn't what was trained; start a new run")
                display.print(f"{folder.path} is finished: there was nothing left to do")
                display.finish(summary, folder.path, task)
                return summary
            checkpoint = ranks.first(folder.checkpoints.newest, display.warn)
            trainer = Trainer(config, checkpoint is None, ranks)
            if checkpoint is not None:
                about, tensors = checkpoint
                trainer.restore(tensors, about)
            trainer.check_ranks()

            # Changes are needed again, to evaluate the run or to resume it once more.
            ranks.first(lambda: changes and folder.write(folder.config, to_json(trainer.config).encode()))
            return run(trainer, folder, display)


def refuse_among_images(place, config):
    """Raise ValueError for a run folder that the data set would read as one of its classes."""
    if config.dataset != "folder":
        return
    from tinyvit.data.folder import is_among_images

    if is_among_images(config.data_dir, place):
        raise ValueError(
            f"{place} is among the images in {config.data_dir}, which would take it for a class; choose another folder "
            "with --out"
        )


def run(trainer, folder, display):
    """Train to the end, or to a signal; returns the summary."""
    config, before, ranks = trainer.config, trainer.seconds, trainer.ranks
    started = saved_at = ranks.clock()

    def seconds():
        return before + ranks.clock() - started

    def save():
        nonlocal saved_at
        ranks.first(folder.checkpoints.save, trainer.step, trainer.epoch, *trainer.state(seconds()))
        saved_at = ranks.clock()

    log = nullcontext(lambda row: None)
    if config.tensorboard and ranks.leads:
        from tinyvit.training.tensorboard import tensorboard

        log = tensorboard(folder.tensorboard, trainer.history)
    # A loss that overflows is noticed and reported by `Faults`, not warned of by every operation before it.
    with (
        stop_on_signals() as signalled, freed_memory_kept(), np.errstate(all="ignore"), advice(trainer, folder),
        log as add_row, trainer.model.storage.on_device()
    ):  # fmt: skip
        stop = ranks.stop(signalled)
        prepared = Preprocessing.from_dataset(trainer.split.train)
        size = image_shape(config.model)[-2:]
        prepared = replace(prepared, img_size=size, resample=config.resample, crop=config.crop)
        ranks.first(folder.write, folder.preprocessing, prepared.to_json().encode())
        ranks.first(folder.write_metrics, trainer.history)
        if config.init.run and not ranks.first(folder.checkpoints.manifests):
            save()  # from here on the run whose weights it took may go
        display.start(trainer, folder.path)
        ranks.first(save_best, trainer, folder)
        while not (trainer.finished or stop):
            with closing(trainer.batches()) as batches:
                for images, targets in batches:
                    step, count = trainer.next_step(images, targets), trainer.batch_images
                    result = train_step(**step)
                    trainer.finish_step(step, result)
                    display.step(trainer.epoch, count, result)
                    if stop:
                        break
                    if ranks.clock() - saved_at > 60 * config.save_minutes:
                        save()
            if stop:
                break
            last = trainer.epoch + 1 == config.epochs
            if not last and (trainer.epoch + 1) % config.evaluate_every:
                trainer.end_epoch()
                continue
            scores = trainer.evaluate(stop)
            if scores is None:
                break
            trainer.history.append(trainer.row(scores, seconds()))
            trainer.end_epoch()
            save()
            ranks.first(folder.write_metrics, trainer.history)
            ranks.first(save_best, trainer, folder)
            display.epoch(trainer.history[-1])
            if warning := trainer.task.warning(scores):
                display.warn(warning)
            add_row(trainer.history[-1])
        if not trainer.finished:
            save()
        summary = ranks.first(finish, trainer, folder, seconds(), stop)
        display.finish(summary, folder.path, trainer.task)
    return summary


@contextmanager
def advice(trainer, folder):
    """Add to an error where the last good weights are, or what would fit into memory."""
    try:
        yield
    except Diverged as error:
        saved = [f"the last good checkpoint is {manifest}" for manifest in folder.checkpoints.manifests()[:1]]
        raise Diverged(f"the training diverged: {error}; {''.join(saved) or 'nothing was saved yet'}") from error
    except Exception as error:
        raise_if_out_of_memory(error, trainer.largest, trainer.memory_needs)
        raise


def save_best(trainer, folder):
    """Save the weights separately if their evaluation, just done, is the best so far."""
    history, name = trainer.history, trainer.task.headline
    if history and history[-1]["step"] == trainer.step:
        best = (max if trainer.task.higher_is_better else min)(row[name] for row in history)
        if history[-1][name] == best:
            folder.checkpoints.save_best(trainer.step, trainer.weights(), {"metrics": history[-1]})


def finish(trainer, folder, seconds, stop):
    """Save weights and summary, at the loop's end or after a signal; returns the summary."""
    config, history, task = trainer.config, trainer.history, trainer.task
    folder.save_model(trainer.weights())
    # The last scores are those of the saved weights, unless steps were taken since.
    scores = history[-1] if history and history[-1]["step"] == trainer.step else {}
    summary = {
        **{name: scores.get(name) for name in task.scores},
        "epochs": trainer.epoch,
        "steps": trainer.step,
        "skipped_steps": int(trainer.faults.skipped),
        "seconds": seconds,
        "data_wait": trainer.data_wait,
        "parameters": trainer.model.num_parameters(),
        **{name: getattr(config, name) for name in ("architecture", "task", "dataset", "validation", "precision")},
        "config": folder.digest(),
        **{name: getattr(trainer, name) for name in ("device", "threads", "kernels")},
        "ranks": trainer.ranks.size,
        "versions": {
            "tinyvit": tinyvit.__version__, "python": platform.python_version(), "numpy": np.__version__,
            **({} if trainer.device == "cpu" else gpu(trainer.device)),
        },
    }
    if not trainer.finished:
        summary["interrupted"] = 128 + stop.signal
    give_back_freed_memory()  # the imports for drawing need some
    if history:
        folder.write(folder.curves, draw_curves({task.part: history}, task))
    folder.write_json(folder.summary, summary)  # last: a folder with a summary is whole
    return summary
