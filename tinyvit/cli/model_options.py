"""Options and arguments that the commands about a trained model have in common."""

import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

from tinyvit.cli.parsing import BadInput, parse, separate
from tinyvit.files import expanded
from tinyvit.text import say


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """How a trained model is loaded and run."""

    json: bool = False
    """Print JSON instead of a table."""
    best: bool = False
    """Take the weights with the best evaluation, not the last ones."""
    device: str = "auto"
    """Where to compute: cpu, cuda for a GPU, cuda:1 for the second of several; auto takes a GPU if one works."""
    threads: int | None = None
    """CPU threads, for the computation and for reading files."""
    kernels: Literal["reference", "numpy", "fast"] | None = None
    """How operations are computed; by default TINYVIT_KERNELS, or the best that is installed."""


@dataclass(frozen=True, kw_only=True)
class FileOptions(ModelOptions):
    """Options of the commands that read image files."""

    data_dir: str | None = None
    """Accepted as by the other commands about a run; a run's own preprocessing is all that is needed here."""


@contextmanager
def computing(trained, options, most=None, needed=0):
    """The kernels, the memory check and the NumPy settings for a computation with a trained model, of which NaN and
    infinite results are reported, not warned of. `most` and `needed` as for `memory_to_evaluate`."""
    import numpy as np

    from tinyvit.levels import using
    from tinyvit.training.inference import memory_to_evaluate

    with using(options.kernels), memory_to_evaluate(trained.model, most, needed), np.errstate(all="ignore"):
        yield


@contextmanager
def computing_together(trained, options, most=None, needed=0):
    """`computing`, shared by the processes that mpiexec or srun has started, if it has; gives their `Ranks`. The model
    goes to the card of its rank."""
    from tinyvit.training.distributed import launched
    from tinyvit.training.distributed.agreement import check_same, digests

    with launched() as ranks:
        if ranks.size > 1:
            device, _ = ranks.device(options.device)
            if device != trained.learner.device:
                trained.learner.to(device=device)
            check_same(ranks, digests(trained.model.state_dict()))
        with computing(trained, options, most, needed), ranks.sharing():
            yield ranks


def model_and_task(name, device="cpu", **fields):
    """A model with new weights, of a registered name or of a run folder's shape, and the run's `Task`, if it is one.

    fields   replace those of its configuration. Raises ValueError for a name that is neither, and for unknown fields
    """
    from tinyvit.models import build, create_model
    from tinyvit.models.registry import VARIANTS, looked_up
    from tinyvit.training.run_folder import RunFolder
    from tinyvit.training.tasks import task_class

    if name in VARIANTS or not os.path.lexists(expanded(name)):
        looked_up(VARIANTS, name, "run folder or model")
        return create_model(name, device=device, **fields), None
    config = RunFolder(name).read_config()
    lacking = [field for field in fields if not hasattr(config.model, field)]
    if lacking:
        raise BadInput(f"the architecture {config.architecture!r} has no {', '.join(lacking)}")
    return build(replace(config.model, **fields), device=device), task_class(config.task)(config)


def parse_run_and_images(rest, options_class, usage):
    """(run, image paths, options) of a command line `RUN IMAGE… [OPTIONS]`."""
    arguments, rest = separate(rest, options_class)
    options = parse(options_class, rest, usage)
    if len(arguments) < 2 or "" in arguments:
        got = f"{' '.join(arguments)} and no image" if arguments else "nothing"
        raise BadInput(f"expected a run folder and images: {usage}, got {got}")
    run, *paths = arguments
    return run, paths, options


class Readable:
    """Yields the results of files that could be read; names the others on stderr, and counts them."""

    others = 0

    def of(self, results):
        for result in results:
            if result.error is None:
                yield result
            else:
                self.others += 1
                sys.stdout.flush()
                say(f"tinyvit: error: {result.error}")
