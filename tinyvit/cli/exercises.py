"""tinyvit exercises"""

import json
from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from tinyvit.cli.notebooks import write_all
from tinyvit.cli.parsing import check_least
from tinyvit.files import expand_path
from tinyvit.text import printable


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
        from tinyvit.exercises.grading import grade

        grades = grade(expand_path(self.file), self.exercises, self.seed, self.time_limit, self.memory)
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
        folder = expand_path(self.nbgrader) / "source"
        made = assignments(self.exercises, self.points)
        texts = {name: json.dumps(notebook, indent=1, ensure_ascii=False) + "\n" for name, notebook in made.items()}
        write_all({folder / name / f"{name}.ipynb": text.encode() for name, text in texts.items()}, self.force)
        print(f"{len(made)} assignment{'s' * (len(made) > 1)} written to {printable(folder)}")
        print(f"  nbgrader generate_assignment {next(iter(made))}    in {printable(folder.parent)}, for the students")
