"""Trainings that differ in their seed alone: a folder with a run for each of them.

    seeds.json      the seeds, and the configuration that the runs have in common
    seed-0/, …      the runs
    summary.json    the scores of all runs, with their means and standard deviations, and the worst run
"""

import json
from dataclasses import replace
from statistics import mean, stdev

from tinyvit.files import read_text
from tinyvit.launcher import started_in_parallel
from tinyvit.levels import using
from tinyvit.training.config import from_json, to_json
from tinyvit.training.datasets import with_absolute_paths
from tinyvit.training.display import Display, clock, table
from tinyvit.training.loop import refuse_among_images, resume, train
from tinyvit.training.run_folder import RunFolder, next_free
from tinyvit.training.tasks import task_class
from tinyvit.training.trainer import Trainer


def train_seeds(config, seeds, out=None, display=None, name=None):
    """Train once with each of the seeds, one run after the other, into the folder `out`; returns the summary, a dict.

    `out` is config.out, or the first free folder of runs/NAME-seeds, runs/NAME-seeds-2, …, where `name` is the data
    set's unless given. A signal ends the current run as in `train`, and no further one begins; the summary then has
    "interrupted", the signal's exit status, and no scores.

    Raises ValueError for seeds that are negative or given twice, for a folder that holds runs already, and as `train`
    does.
    """
    check(seeds, config.distributed)
    config = with_absolute_paths(config)
    place = out or config.out or f"runs/{name or config.dataset}-seeds"
    refuse_among_images(place, config)
    with using(config.kernels):
        Trainer(replace(config, seed=seeds[0]))  # raises what would refuse each of them, before anything is written
    folder = RunFolder(out or config.out or next_free(place))
    config = replace(config, out=None)
    with folder.made():
        write(folder, config, seeds)
        return run_all(folder, config, seeds, display or Display())


def resume_seeds(path, display=None, **changes):
    """Go on with the runs in the folder `path`, as `resume` does with one: finished ones aren't changed, a stopped one
    continues, and the others begin; returns the summary, a dict."""
    folder = RunFolder(path)
    seeds, config = read(folder)
    check(seeds, changes.get("distributed", "auto"))
    config = with_absolute_paths(replace(config, **changes))
    with folder.locked():
        return run_all(folder, config, seeds, display or Display(), **changes)


def check(seeds, distributed="none"):
    """Raise ValueError unless these can be the seeds of several runs, in one process."""
    proper = bool(seeds) and all(type(seed) is int and seed >= 0 for seed in seeds)
    if not proper or len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds must be different ints of at least 0, got {' '.join(map(str, seeds)) or 'none'}")
    _, ranks = started_in_parallel()
    if ranks > 1 and distributed != "none":
        raise ValueError(
            f"several seeds can't be trained by {ranks} ranks; start a training for each seed, or one process for all"
        )


def write(folder, config, seeds):
    folder.write_json(folder.seeds, {"seeds": list(seeds), "config": json.loads(to_json(config))})


def read(folder):
    """(seeds, configuration) of a folder with a run for each seed."""
    try:
        content = json.loads(read_text(folder.seeds))
        seeds, config = content["seeds"], json.dumps(content["config"])
        check(seeds)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"{folder.seeds} doesn't hold seeds and their configuration: {error}") from error
    return seeds, from_json(config, folder.seeds)


def run_all(folder, config, seeds, display, **changes):
    """Finish the run of each seed; returns the summary of all. Changes are noted once a run has ended with them."""
    runs = {seed: folder.path / f"seed-{seed}" for seed in seeds}
    summaries = {}
    for number, (seed, path) in enumerate(runs.items(), start=1):
        display.print(("\n" if number > 1 else "") + f"seed {seed}, run {number} of {len(seeds)}\n")
        if (path / "config.json").exists():
            summaries[seed] = resume(path, display, **changes)
        else:
            summaries[seed] = train(replace(config, seed=seed, init=init_of(runs, config)), path, display)
        if changes:
            write(folder, config, seeds)
        if "interrupted" in summaries[seed]:
            display.print(f"\n  go on with all seeds: tinyvit train --resume {folder.path}")
            return {"interrupted": summaries[seed]["interrupted"]}
    summary = combined(config, summaries)
    folder.write_json(folder.summary, summary)
    show(summary, folder.path, config, display)
    return summary


def init_of(runs, config):
    """What the next run starts from: the weights that the first run took, whose SHA256 it has noted."""
    begun = [path for path in runs.values() if (path / "config.json").exists()]
    return RunFolder(begun[0]).read_config().init if begun else config.init


def combined(config, summaries):
    """The summary of several runs from the summary of each, by seed."""
    task = task_class(config.task)(config)
    scores = {}
    for name in task.scores:
        values = [summary[name] for summary in summaries.values()]
        scores[name] = {"mean": mean(values), "std": stdev(values) if len(values) > 1 else None, "values": values}
    worst = (min if task.higher_is_better else max)(summaries, key=lambda seed: summaries[seed][task.headline])
    return {
        "seeds": list(summaries),
        "scores": scores,
        "worst": {"seed": worst, **{name: summaries[worst][name] for name in task.scores}},
        "seconds": sum(summary["seconds"] for summary in summaries.values()),
    }


def show(summary, path, config, display):
    """Print the means and standard deviations (n − 1) of the scores, and the worst run."""
    task, seeds = task_class(config.task)(config), summary["seeds"]
    rows = []
    for name, score in summary["scores"].items():
        spread = "" if score["std"] is None else f" ± {task.shown(name, score['std'])}"
        rows.append((name.replace("_", " "), task.shown(name, score["mean"]) + spread))
    worst = summary["worst"]
    rows += [
        ("the worst", f"{task.shown(task.headline, worst[task.headline])}, with seed {worst['seed']}"),
        ("time", f"{clock(summary['seconds'])} (minutes:seconds)"),
        ("folder", str(path)),
    ]
    title = f"mean ± standard deviation of {len(seeds)} seeds" if len(seeds) > 1 else f"seed {seeds[0]} alone"
    display.print(f"\n{title}\n\n{table(rows)}")
