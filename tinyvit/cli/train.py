"""tinyvit train"""

from dataclasses import dataclass
from typing import Literal

from tinyvit.cli.parsing import BadInput, option, parse, positional

USAGE = """usage: tinyvit train PRESET [OPTIONS]
       tinyvit train --resume RUN [OPTIONS]

presets:
{presets}

options: tinyvit train PRESET --help, tinyvit train --resume RUN --help"""


def train(rest):
    """tinyvit train PRESET [--field value …], tinyvit train --resume RUN"""
    if rest[:1] == ["--resume"] or (rest and rest[0].startswith("--resume=")):
        return resume(rest)
    from tinyvit.training import PRESETS, preset
    from tinyvit.training import train as run_training
    from tinyvit.training.config import plain, switched, with_fields

    name, options = positional(
        rest, f"a preset ({', '.join(PRESETS)}) first: tinyvit train PRESET …, or tinyvit train --resume RUN"
    )
    if name is None:
        print(USAGE.format(presets="\n".join(f"  {name}" for name in PRESETS)))
        return 0
    if "--resume" in options:
        raise BadInput("a run is resumed without a preset: tinyvit train --resume RUN")
    # The options depend on the architecture and the task.
    default = switched(preset(name), option(options, "--architecture"), option(options, "--task"))
    cls = with_fields(default.architecture, default.task)
    default = cls(**vars(default))
    config = plain(parse(cls, options, f"tinyvit train {name}", default=default))
    return run_training(config, name=name).get("interrupted", 0)


@dataclass(frozen=True)
class ResumeOptions:
    """Resume a run that was stopped or killed, from its newest checkpoint, with the same result as if it had never
    stopped. Everything else is in the run folder's config.json."""

    data_dir: str | None = None
    """Folder or archive with the data, if it has moved."""
    device: str | None = None
    """Another device to train on: auto, cpu, cuda, cuda:1, …"""
    precision: Literal["float32", "float64", "tf32", "bfloat16", "float16"] | None = None
    """Another precision; float64 and the others don't share checkpoints."""
    threads: int | None = None
    """CPU threads; another number changes the last digits."""
    kernels: Literal["reference", "numpy", "fast"] | None = None
    """How operations are computed; other kernels change the last digits."""


def resume(rest):
    """tinyvit train --resume RUN"""
    first = rest[0].partition("=")[2]
    path, options = positional([first, *rest[1:]] if first else rest[1:], "a run folder: tinyvit train --resume RUN")
    options = parse(ResumeOptions, options, "tinyvit train --resume RUN")

    from tinyvit.training import resume as resume_training

    changes = {name: value for name, value in vars(options).items() if value is not None}
    return resume_training(path, **changes).get("interrupted", 0)
