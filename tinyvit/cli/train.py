"""tinyvit train"""

from tinyvit.cli.parsing import parse, positional


def train(rest):
    """tinyvit train PRESET [--field value …]"""
    from tinyvit.training import TrainConfig, preset
    from tinyvit.training import train as run_training
    from tinyvit.training.presets import PRESETS

    name, options = positional(rest, f"a preset ({', '.join(PRESETS)}) first: tinyvit train PRESET …")
    if name is None:
        listing = "\n".join(f"  {name}" for name in PRESETS)
        print(f"usage: tinyvit train PRESET [OPTIONS]\n\npresets:\n{listing}\n\noptions: tinyvit train PRESET --help")
        return 0
    config = parse(TrainConfig, options, f"tinyvit train {name}", default=preset(name))
    summary = run_training(config, name=name)
    return summary.get("interrupted", 0)
