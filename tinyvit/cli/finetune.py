"""tinyvit finetune"""

from tinyvit.cli.parsing import parse, positional


def finetune(rest):
    """tinyvit finetune RUN --data NAME [--field value …]"""
    run, rest = positional(rest, "a run folder first: tinyvit finetune RUN --data NAME …")

    from tinyvit.training import train
    from tinyvit.training.finetune import FinetuneOptions, finetune_config

    options = vars(parse(FinetuneOptions, rest, "tinyvit finetune RUN"))
    data = options.pop("data")
    return train(finetune_config(run, data, **options), name=f"{data}-finetuned").get("interrupted", 0)
