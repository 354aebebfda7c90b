"""Trainings that differ in their seed alone: a folder with a run for each of them.

    seeds.json      the seeds, and the configuration that the runs have in common
    seed-0/, …      the runs
    summary.json    the scores of all runs, with their means and standard deviations, and the worst run
"""

import json
from dataclasses import replace
from statistics import mean, stdev

from tinyvit.files import read_text
from tinyvit.launcher import rank_and_size
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
        first = Trainer(replace(config, seed=seeds[0]))  # refuses what would be refused, before anything is written
    config = replace(config, precision=first.config.precision)
    folder = RunFolder(out or config.out or next_free(place))
    with folder.start():
        return run_all(folder, replace(config, out=None), seeds, display or Display())


def resume_seeds(path, display=None, **changes):
    """Go on with the runs in the folder `path`, as `resume` does with one: finished ones aren't changed, a stopped one
    continues, and the others begin; returns the summary, a dict."""
    folder = RunFolder(path)
    try:
        content = json.loads(read_text(folder.seeds))
        seeds, config = content["seeds"], from_json(json.dumps(content["config"]), folder.seeds)
        check(seeds)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"{folder.seeds} doesn't hold seeds and their configuration: {error}") from error
    check(seeds, changes.get("distributed", "auto"))
    with folder.hold_lock():
        config = with_absolute_paths(replace(config, **changes))
        return run_all(folder, config, seeds, display or Display(), **changes)


def check(seeds, distributed="none"):
    """Raise ValueError unless these can be the seeds of several runs, in one process."""
    proper = bool(seeds) and all(type(seed) is int and seed >= 0 for seed in seeds)
    if not proper or len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds must be different ints of at least 0, got {' '.join(map(str, seeds)) or 'none'}")
    _, ranks = rank_and_size()
    if ranks > 1 and distributed != "none":
        raise ValueError(f"several seeds can't be trained by {ranks} ranks; start one process for all of them")


def run_all(folder, config, seeds, display, **changes):
    """Finish the run of each seed; returns the summary of all. Changes are noted once a run has ended with them."""
    runs, summaries = {seed: RunFolder(folder.path / f"seed-{seed}") for seed in seeds}, {}
    content = {"seeds": list(seeds), "config": json.loads(to_json(config))}
    if not folder.seeds.exists():
        folder.write_json(folder.seeds, content)
    for number, (seed, run) in enumerate(runs.items(), start=1):
        display.print(("\n" if number > 1 else "") + f"seed {seed}, run {number} of {len(seeds)}\n")
        if run.config.exists():
            summaries[seed] = resume(run.path, display, **changes)
        else:  # from the weights that the first run took, whose SHA256 it has noted
            begun = [other for other in runs.values() if other.config.exists()]
            init = begun[0].read_config().init if begun else config.init
            summaries[seed] = train(replace(config, seed=seed, init=init), run.path, display)
        folder.write_json(folder.seeds, content)
        if "interrupted" in summaries[seed]:
            display.print(f"\n  go on with all seeds: tinyvit train --resume {folder.path}")
            return {"interrupted": summaries[seed]["interrupted"]}
    summary = summarize_seeds(folder, config, summaries, display)
    folder.write_json(folder.summary, summary)
    return summary


def summarize_seeds(folder, config, summaries, display):
    """The summary of several runs from the summary of each, by seed; means and standard deviations (n − 1) of the
    scores, and the worst run, are printed."""
    task, found, seeds = task_class(config.task)(config), list(summaries.values()), list(summaries)
    scores, rows = {}, []
    for name in task.scores:
        values = [summary[name] for summary in found]
        scores[name] = {"mean": mean(values), "std": stdev(values) if len(values) > 1 else None, "values": values}
        spread = f" ± {task.format_score(name, scores[name]['std'])}" if len(values) > 1 else ""
        rows.append((name.replace("_", " "), task.format_score(name, scores[name]["mean"]) + spread))
    worst = (min if task.higher_is_better else max)(seeds, key=lambda seed: summaries[seed][task.headline])
    seconds = sum(summary["seconds"] for summary in found)
    rows += [
        ("the worst", f"{task.format_score(task.headline, summaries[worst][task.headline])}, with seed {worst}"),
        ("time", f"{clock(seconds)} (minutes:seconds)"),
        ("folder", str(folder.path)),
    ]
    title = f"mean ± standard deviation of {len(seeds)} seeds" if len(seeds) > 1 else f"seed {seeds[0]} alone"
    display.print(f"\n{title}\n\n{table(rows)}")
    return {
        "seeds": seeds,
        "scores": scores,
        "worst": {"seed": worst, **{name: summaries[worst][name] for name in task.scores}},
        "seconds": seconds,
    }
