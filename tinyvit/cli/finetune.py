"""tinyvit finetune"""

from dataclasses import dataclass

from tinyvit.cli.parsing import Run, parse
from tinyvit.training.finetune import FinetuneOptions, finetune_config


@dataclass(frozen=True, kw_only=True)
class Options(FinetuneOptions):
    __doc__ = FinetuneOptions.__doc__

    run: Run
    """The folder of a run."""


def finetune(rest):
    """tinyvit finetune RUN --data NAME [--field value …]"""
    from tinyvit.training import train

    options = vars(parse(Options, rest, "tinyvit finetune"))
    run, data = options.pop("run"), options.pop("data")
    return train(finetune_config(run, data, **options), name=f"{data}-finetuned").get("interrupted", 0)
