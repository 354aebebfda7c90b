"""tinyvit finetune"""

from dataclasses import dataclass

from tinyvit.cli.parsing import Run
from tinyvit.training.finetune import FinetuneOptions, finetune_config


@dataclass(frozen=True, kw_only=True)
class Finetune(FinetuneOptions):
    __doc__ = FinetuneOptions.__doc__

    run: Run
    """The folder of a run, or the name of a model that comes with tinyvit, such as cifar10-cpu."""

    def __call__(self):
        from tinyvit.training import train

        options = dict(vars(self))
        config = finetune_config(options.pop("run"), options.pop("data"), **options)
        return train(config, name=f"{self.data}-finetuned").get("interrupted", 0)
