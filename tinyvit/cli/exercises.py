"""tinyvit exercises"""

import json
import os
import sys
from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from tinyvit.cli.notebooks import write_all
from tinyvit.cli.parsing import check_least, parse
from tinyvit.files import expanded
from tinyvit.text import printable

WHAT = "grade FILE.py|FILE.ipynb, or export --nbgrader DIR"


@dataclass(frozen=True)
class Grade:
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

    def __call__(self):
        if sys.platform != "linux" or not hasattr(os, "killpg"):
            raise ValueError("grading needs Linux, which limits a solution's memory, time, files and processes")

        from tinyvit.exercises.grading import grade

        grades = grade(expanded(self.file), self.exercises, self.seed, self.time_limit, self.memory)
        if self.json:
            print(json.dumps(grades.as_json(), ensure_ascii=False))
            return
        unread = [f"not read, as it isn't Python: {why}" for why in grades.unread]
        print(*map(printable, [*grades.table().split("\n"), *unread]), sep="\n")


@dataclass(frozen=True)
class Export:
    """Write assignments for nbgrader, one notebook per topic, in the folder source/ that nbgrader reads."""

    nbgrader: str
    """The folder of the nbgrader course."""
    exercises: tuple[str, ...] = ()
    """Names of the exercises; by default all."""
    points: int = 1
    """Points for each exercise."""
    force: bool = False
    """Replace notebooks that are there already, and changed."""

    def __call__(self):
        from tinyvit.exercises.nbgrader import assignments

        check_least(self, points=1)
        folder = expanded(self.nbgrader) / "source"
        made = assignments(self.exercises, self.points)
        texts = {name: json.dumps(notebook, indent=1, ensure_ascii=False) + "\n" for name, notebook in made.items()}
        write_all({folder / name / f"{name}.ipynb": text.encode() for name, text in texts.items()}, self.force)
        print(f"{len(made)} assignments are in {printable(folder)}\n  nbgrader generate_assignment {next(iter(made))}"
              f"    in {printable(folder.parent)}: makes the students' version")  # fmt: skip


def exercises(rest):
    """tinyvit exercises grade FILE, tinyvit exercises export --nbgrader DIR"""
    what, *rest = ["grade", "--help"] if rest in (["-h"], ["--help"]) else rest or ["nothing"]
    commands = {"grade": Grade, "export": Export}
    if what not in commands:
        raise ValueError(f"expected {WHAT}, got {what}")
    return parse(commands[what], rest, f"tinyvit exercises {what}")()
