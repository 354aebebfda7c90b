"""tinyvit compare"""

import json
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from tyro.conf import Positional, arg

from tinyvit.bench.table import columns
from tinyvit.cli.model_options import file_to_write
from tinyvit.files import write
from tinyvit.interop.folder import read_json
from tinyvit.text import printable
from tinyvit.training.config import to_json
from tinyvit.training.curves import draw_curves
from tinyvit.training.run_folder import RunFolder, locate_run
from tinyvit.training.tasks import task_class


@dataclass(frozen=True, kw_only=True)
class Compare:
    """Trainings side by side: a table of the settings that differ and of the last evaluation, and a picture of loss and
    accuracy, or the task's other figures, over epochs and over minutes. Of runs of different tasks, the figures are
    compared that all of them have and that are shares, such as the accuracy."""

    runs: Annotated[Positional[tuple[str, ...]], arg(metavar="RUN…")]
    """The folders of two runs or more, or names of models that come with tinyvit, such as cifar10-cpu."""
    out: str = "compare.png"
    """The .png file to draw the picture to."""
    json: bool = False
    """Print JSON instead of a table."""

    def __call__(self):
        path, runs = file_to_write(self.out, "out", (".png",)), list(dict.fromkeys(self.runs))
        if len(runs) < 2:
            raise ValueError(f"expected two different runs or more: RUN RUN …, got {' '.join(runs) or 'none'}")
        folders = [RunFolder(locate_run(run)) for run in runs]
        tasks = [task_class(config.task)(config) for config in map(RunFolder.read_config, folders)]
        names = common_figures(tasks)
        histories = {run: folder.read_metrics(names) for run, folder in zip(runs, folders)}
        options = [options_of(folder, task.config) for folder, task in zip(folders, tasks)]
        every = dict.fromkeys(name for one in options for name in one)
        ignored = "out", "init.sha256"
        differing = [name for name in every if name not in ignored and len({str(one.get(name)) for one in options}) > 1]
        found = [
            {"run": run, "settings": {name: one[name] for name in differing if name in one}, **rows[-1],
             "parameters": task.build(device="meta").num_parameters()}
            for (run, rows), one, task in zip(histories.items(), options, tasks)
        ]  # fmt: skip
        write(path, draw_curves(histories, tasks[0], names))
        if self.json:
            print(json.dumps({"out": str(path), "runs": found}, allow_nan=False))
            return
        forms = {name: partial(tasks[0].format_score, name) for name in names}
        forms |= {"epoch": str, "seconds": "{:,.0f}".format, "parameters": "{:,}".format}
        lines = [[name, *(ending(one["settings"].get(name, "–")) for one in found)] for name in differing]
        lines += [[name.replace("_", " "), *(form(one[name]) for one in found)] for name, form in forms.items()]
        print(*columns(["", *map(ending, runs)], lines), f"\nwritten to {printable(path)}", sep="\n")


def common_figures(tasks):
    """The names of the figures that runs of these tasks can be compared by; ValueError if there are none."""
    first = tasks[0]
    names = [
        name for name in first.columns
        # Losses of different tasks are different.
        if all(name in task.columns and (task.name == first.name or task.is_share(name)) for task in tasks)
    ]  # fmt: skip
    if not names:
        raise ValueError(f"runs of the tasks {', '.join(task.name for task in tasks)} have no figure in common")
    return names


def options_of(folder, config):
    """The options of a training by their names; device, threads and kernels as they were when it ended."""
    options, summary = {}, read_json(folder.path, folder.summary.name) or {}
    for name, value in json.loads(to_json(config)).items():
        fields = {f"{name}.{field}": one for field, one in value.items()} if isinstance(value, dict) else {name: value}
        options |= {field.replace("_", "-"): one for field, one in fields.items()}
    return options | {name: summary[name] for name in ("device", "threads", "kernels") if name in summary}


def ending(value, most=30):
    """A setting or a path as text, of which the end is kept: paths often begin alike."""
    text = str(value)
    return printable("…" * (len(text) > most) + text[-most:])
