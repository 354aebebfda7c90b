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
class Table:
    """List all exercises with their notebooks, levels, and the exercises that each builds on.

    `tinyvit exercises check FILE NAME`, `tinyvit exercises grade FILE…` and `tinyvit exercises export --nbgrader DIR`
    have a --help of their own."""

    def __call__(self):
        from tinyvit.exercises import table

        print(table())


@dataclass(frozen=True)
class Check:
    """Check one exercise in a script or notebook as a teacher would; the exit status is 0 if it is right, else 1.

    Only its function runs, and what that uses, in this process."""

    file: Annotated[Positional[str], arg(metavar="FILE")]
    """The script or notebook."""
    name: Annotated[Positional[str], arg(metavar="NAME")]
    """The exercise; `tinyvit exercises` lists all."""

    def __call__(self):
        from tinyvit.exercises.catalogue import EXERCISES, find
        from tinyvit.exercises.checking import check
        from tinyvit.exercises.grading.submission import Submission

        find(self.name)
        function = Submission(expand_path(self.file), EXERCISES).load(self.name)
        return 0 if check(self.name, function) else 1


@dataclass(frozen=True)
class Grade:
    """Grade the exercises in scripts or notebooks, or in folders of them, on numbers that are new each time.

    Of several files a table is printed, a line for each; in it an exercise that a file lacks gives 0 if another one
    has it.

    Each solution runs in a process of its own, with limits on time, memory, files and processes, in an empty folder; it
    may import NumPy and a few modules of Python. Its outputs are compared in another process. A complex step in place
    of a gradient is refused, as far as it is noticed. Of the file only the functions of exercises run, and what these
    use; they have the exercise's name, as softmax or my_softmax, or stand in exercises.check(name, function).

    This isolates mistakes, and cheating by students. It does not hold a determined attacker, unless the operating
    system does: for that, run it in a container or under an account of its own. Needs Linux."""

    files: Annotated[Positional[tuple[str, ...]], arg(metavar="FILE…")]
    """Scripts, notebooks, and folders of them."""
    exercises: tuple[str, ...] = ()
    """Names of the exercises that count; one that a file lacks gives 0. By default all that the files have."""
    seed: int | None = None
    """Repeats a grading with the shapes and numbers of this seed; by default they are new."""
    time_limit: float = 10.0
    """Seconds that a solution may take, all its calls together."""
    memory: int = 512
    """Megabytes that a solution may take."""
    json: bool = False
    """Print one JSON object."""
    csv: bool = False
    """Print the scores as comma-separated values: a row per file, a column per exercise."""

    def __call__(self):
        from tinyvit.exercises.grading import class_csv, class_table, grade_all

        if not self.files:
            raise ValueError("missing FILE: scripts, notebooks, or folders of them")
        paths = [expand_path(file) for file in self.files]
        grades = grade_all(paths, self.exercises, self.seed, self.time_limit, self.memory)
        alone = len(paths) == len(grades) == 1
        if self.json:
            found = [one.as_json() for one in grades]
            score = sum(one.score for one in grades) / len(grades)
            made = found[0] if alone else {"score": score, "files": found}
            print(json.dumps(made, ensure_ascii=False))
            return
        if self.csv:
            text = class_csv(grades)
        elif alone:
            text = grades[0].table()
        else:
            text = class_table(grades)
        print(*map(printable, text.rstrip("\n").split("\n")), sep="\n")


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
