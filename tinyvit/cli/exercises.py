"""tinyvit exercises"""

import json
import os
import sys
from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from tinyvit.cli.parsing import parse
from tinyvit.files import expanded, write
from tinyvit.text import printable

WHAT = "grade FILE.py|FILE.ipynb, or export --nbgrader DIR"


@dataclass(frozen=True)
class GradeOptions:
    """Grade the exercises in a learner's script or notebook, on shapes and numbers that are new each time.

    Each solution runs in a process of its own, with limits on time, memory, files and processes, in an empty folder; it
    may import NumPy and a few modules of Python. Its outputs are compared in another process. A complex step in place
    of a gradient is refused, as far as it is noticed. Of the file only the functions of exercises run, and what these
    use; they have the exercise's name, as softmax or my_softmax, or stand in exercises.check(name, function).

    This isolates mistakes, and cheating by students. It does not hold a determined attacker, unless the operating
    system does: for that, run it in a container or under an account of its own. Needs Linux."""

    file: Annotated[Positional[str], arg(metavar="FILE")]
    """The script or notebook."""
    exercises: tuple[str, ...] = ()
    """Names of the exercises that count; one that the file lacks gives 0. By default all that the file has."""
    seed: int | None = None
    """Repeats a grading with the shapes and numbers of this seed; by default they are new."""
    time_limit: float = 10.0
    """Seconds that a solution may take, all its calls together."""
    memory: int = 512
    """Megabytes that a solution may take."""
    json: bool = False
    """Print one JSON object."""


@dataclass(frozen=True)
class ExportOptions:
    """Write assignments for nbgrader, one notebook per topic, in the folder source/ that nbgrader reads."""

    nbgrader: str
    """The folder of the nbgrader course."""
    exercises: tuple[str, ...] = ()
    """Names of the exercises; by default all."""
    points: int = 1
    """Points for each exercise."""
    force: bool = False
    """Replace notebooks that are there already."""


def exercises(rest):
    """tinyvit exercises grade FILE, tinyvit exercises export --nbgrader DIR"""
    what, *rest = ["grade", "--help"] if rest in (["-h"], ["--help"]) else rest or ["nothing"]
    if what not in ("grade", "export"):
        raise ValueError(f"expected {WHAT}, got {what}")
    return grade(rest) if what == "grade" else export(rest)


def grade(rest):
    options = parse(GradeOptions, rest, "tinyvit exercises grade")
    if sys.platform != "linux" or not hasattr(os, "killpg"):
        raise ValueError("grading needs Linux, which limits a solution's memory, time, files and processes")

    from tinyvit.exercises import grading

    grades = grading.grade(expanded(options.file), options.exercises, options.seed, options.time_limit, options.memory)
    if options.json:
        print(json.dumps(grades.as_json(), ensure_ascii=False))
        return
    unread = [f"not read, as it isn't Python: {why}" for why in grades.unread]
    print(*map(printable, [*grades.table().split("\n"), *unread]), sep="\n")


def export(rest):
    options = parse(ExportOptions, rest, "tinyvit exercises export")
    if options.points < 1:
        raise ValueError(f"points must be at least 1, got {options.points}")

    from tinyvit.exercises import nbgrader

    folder = expanded(options.nbgrader)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"expected the folder of an nbgrader course, got {folder}")
    made = nbgrader.assignments(options.exercises, options.points)
    files = {folder / "source" / name / f"{name}.ipynb": notebook for name, notebook in made.items()}
    there = [str(file) for file in files if file.exists()]
    if there and not options.force:
        more = f" and {len(there) - 1} more" if len(there) > 1 else ""
        raise ValueError(f"{there[0]} is there already{more}; name another folder, or replace what is there by --force")
    for file, notebook in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        write(file, json.dumps(notebook, indent=1, ensure_ascii=False).encode() + b"\n")
    print(
        f"{len(files)} assignments are in {printable(folder / 'source')}\n"
        f"  nbgrader generate_assignment {next(iter(made))}    in {printable(folder)}: makes the students' version"
    )
