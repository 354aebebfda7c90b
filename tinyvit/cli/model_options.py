"""Options and arguments that the commands about a trained model have in common."""

import json
import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from tinyvit.cli import notes
from tinyvit.cli.parsing import Run
from tinyvit.files import expand_path
from tinyvit.models.registry import variants
from tinyvit.registry import look_up
from tinyvit.text import printable, say


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """How a trained model is loaded and run."""

    run: Run
    """The folder of a run, or the name of a model that comes with tinyvit, such as cifar10-cpu."""
    json: bool = False
    """Print JSON instead of a table."""
    best: bool = False
    """Take the weights with the best evaluation, not the last ones."""
    device: str = "auto"
    """The device: cpu, cuda for a GPU, cuda:1 for the second of several; auto takes a GPU if one works."""
    threads: int | None = None
    """CPU threads, for the computation and for reading files."""
    kernels: Literal["reference", "numpy", "fast"] | None = None
    """How operations are computed; by default TINYVIT_KERNELS, or the best that is installed."""

    def load(self):
        """The `Trained` of the run; ValueError if there is none, and for a number of threads that can't be."""
        from tinyvit.training.threads import thread_count
        from tinyvit.training.trained import load_trained

        thread_count(self.threads)
        return load_trained(self.run, self.device, self.best)

    def show(self, numbers, text):
        """Print numbers as JSON, if that is asked for, else the text."""
        print(json.dumps(numbers, allow_nan=False) if self.json else text)


@dataclass(frozen=True, kw_only=True)
class FileOptions(ModelOptions):
    """Options of the commands that read image files."""

    images: Annotated[Positional[tuple[str, ...]], arg(metavar="IMAGE…")]
    """Files that Pillow reads, or folders, of which all images are taken."""
    data_dir: str | None = None
    """Has no effect: these images need no data set. Accepted so that commands about a run take the same options."""

    def __post_init__(self):
        if not self.images or "" in self.images:
            raise ValueError(f"expected a run folder and images: RUN IMAGE…, got {self.run} and no image")

    def show_shares(self, results, key, what, share="probability"):
        """Print for each (image, [(class or text, probability), …], error) a line with a bar for each of these, or one
        JSON object, with the `what` and the `share` of each at `key`. Returns the exit status."""
        unreadable = []
        for path, shares, _ in readable(results, unreadable):
            width = max(len(printable(name)) for name, _ in shares)
            lines = [f"  {printable(name):<{width}}   {100 * p:6.2f} %  {'█' * round(20 * p)}" for name, p in shares]
            self.show({"image": str(path), key: [{what: name, share: p} for name, p in shares]},
                      "\n".join([printable(path), *map(str.rstrip, lines)]))  # fmt: skip
        return 2 if unreadable else 0


@contextmanager
def computing(trained, options):
    """A computation with a trained model, shared by the processes that mpiexec or srun has started, if it has; gives
    their `Ranks`. The model goes to the card of its rank.

    NaN and infinite results are reported where they are found, without a warning. If the command succeeds, one line on
    stderr says why no GPU was used.
    """
    import numpy as np

    from tinyvit.levels import using
    from tinyvit.training.distributed import join_ranks
    from tinyvit.training.distributed.agreement import check_same, digests

    with join_ranks() as ranks, using(options.kernels), np.errstate(all="ignore"):
        if ranks.size > 1:
            device, _ = ranks.device(options.device)
            if device != trained.learner.device:
                trained.learner.to(device=device)
            check_same(ranks, digests(trained.model.state_dict()))
        with ranks.sharing():
            yield ranks
    if trained.why_not_gpu:
        notes.append(f"on the CPU, no GPU: {trained.why_not_gpu}")


def model_and_task(name, device="cpu", **fields):
    """A model with new weights, of a registered name or of the shape of a run's or a preset's, and the `Task` of the
    last two.

    fields   replace those of its configuration. Raises ValueError for any other name, and for unknown fields
    """
    from tinyvit.models import build, create_model
    from tinyvit.training.presets import PRESETS
    from tinyvit.training.run_folder import RunFolder, locate_run, stored_models
    from tinyvit.training.tasks import task_class

    if name in variants(name):
        return create_model(name, device=device, **fields), None
    is_run = os.path.lexists(expand_path(name)) or os.path.dirname(name) or name in stored_models()
    if not is_run:
        look_up({**variants(), **PRESETS.data}, name, "run folder or model")
    config = RunFolder(locate_run(name)).read_config() if is_run else PRESETS[name]
    lacking = [field for field in fields if not hasattr(config.model, field)]
    if lacking:
        raise ValueError(f"the architecture {config.architecture!r} has no {', '.join(lacking)}")
    return build(replace(config.model, **fields), device=device), task_class(config.task)(config)


def readable(results, unreadable):
    """Yield the results of files that could be read; name the others on stderr, and put them into the list."""
    for result in results:
        if result.error is None:
            yield result
        else:
            unreadable.append(result)
            sys.stdout.flush()
            say(f"tinyvit: error: {result.error}")


def class_number(name, classes):
    """The number of a class that was given by its name, or by its number; ValueError if there is none."""
    numbers = {str(number): number for number in range(len(classes))}
    return look_up(numbers | {own: number for number, own in enumerate(classes)}, name, "class")


def file_to_write(text, option, endings):
    """The path of the file that an option names; ValueError for another ending, a folder, and a file in none."""
    path = expand_path(text)
    if path.suffix.lower() not in endings:
        raise ValueError(f"{option} must end in {', '.join(endings)}, got --{option} {text!r}")
    if path.is_dir() or not path.parent.is_dir():
        what = "is a folder" if path.is_dir() else f"is in {path.parent}, which doesn't exist"
        raise ValueError(f"--{option} {text!r} {what}; give a file")
    return path
