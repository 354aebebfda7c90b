"""tinyvit train"""

from dataclasses import dataclass, field, make_dataclass, replace
from typing import Literal

from tinyvit.cli.parsing import option, parse

USAGE = """usage: tinyvit train PRESET [OPTIONS]
       tinyvit train --resume RUN [OPTIONS]

presets:
{presets}

options: tinyvit train PRESET --help, tinyvit train --resume RUN --help"""


@dataclass(frozen=True, kw_only=True)
class SeveralSeeds:
    """The option that is added to those of a training."""

    seeds: tuple[int, ...] = ()
    """Train once with each of these seeds, one after the other, into a folder each, with a summary of all."""


def train(rest):
    """tinyvit train PRESET [--field value …], tinyvit train --resume RUN"""
    if rest and rest[0].partition("=")[0] == "--resume":
        return resume(rest)
    from tinyvit.models import config_class
    from tinyvit.training import PRESETS, TrainConfig, preset
    from tinyvit.training import train as run_training
    from tinyvit.training.config import switch

    if rest[:1] in (["-h"], ["--help"]):
        print(USAGE.format(presets="\n".join(f"  {name}" for name in PRESETS)))
        return 0
    name, *options = rest or [""]
    if not name or name.startswith("-"):
        raise ValueError(f"expected a preset ({', '.join(PRESETS)}) first: tinyvit train PRESET …, or "
                         f"tinyvit train --resume RUN, got {name or 'nothing'}")  # fmt: skip
    if "--resume" in options:
        raise ValueError("a run is resumed without a preset: tinyvit train --resume RUN")
    default = switch(preset(name), option(options, "--architecture"), option(options, "--task"))
    backbone = option(options, "--model.architecture")
    if default.architecture == "segmenter" and backbone not in (None, default.model.architecture):
        default = replace(default, model=replace(default.model, architecture=backbone, backbone=None))
    of_task = type(default.objective)
    typed = [("model", config_class(default.architecture)), ("objective", of_task, field(default_factory=of_task))]
    cls = make_dataclass("TrainConfig", typed, bases=(TrainConfig, SeveralSeeds), frozen=True)
    values = vars(parse(cls, options, f"tinyvit train {name}", default=cls(**vars(default))))
    seeds, config = values.pop("seeds"), TrainConfig(**values)
    if seeds or "--seeds" in options:
        from tinyvit.training.seeds import train_seeds

        if option(options, "--seed") is not None:
            raise ValueError("expected --seed for one run or --seeds for several, got both")
        return train_seeds(config, seeds, name=name).get("interrupted", 0)
    return run_training(config, name=name).get("interrupted", 0)


@dataclass(frozen=True)
class ResumeOptions:
    """Resume a run that was stopped or killed, from its newest checkpoint, with the same result as if it had never
    stopped, or the runs of several seeds. Everything else is in the run folder's config.json."""

    resume: str
    """The folder of the run."""
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
    distributed: Literal["auto", "mpi", "nccl", "none"] | None = None
    """How several processes go on with it together; another number of ranks changes the last digits."""


def resume(rest):
    """tinyvit train --resume RUN"""
    options = vars(parse(ResumeOptions, rest, "tinyvit train", help_of="tinyvit train --resume RUN"))
    path = options.pop("resume")

    from tinyvit.files import expand_path
    from tinyvit.training import resume as resume_training

    changes = {name: value for name, value in options.items() if value is not None}
    if (expand_path(path) / "seeds.json").is_file():
        from tinyvit.training.seeds import resume_seeds as resume_training
    return resume_training(path, **changes).get("interrupted", 0)
