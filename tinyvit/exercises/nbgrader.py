"""The exercises as nbgrader's assignments, one notebook per topic.

A notebook holds, for each exercise, what to write, a cell for the solution, a test that the student sees, and a test
with points on other numbers. The cells have the metadata of nbgrader's schema, version 3
(https://nbgrader.readthedocs.io/en/stable/contributor_guide/metadata.html).

nbgrader runs a notebook's tests in the notebook's own kernel, where a student's code can do anything. What was handed
in can be graded by `grading` as well, in processes of their own.
"""

import hashlib
import textwrap

from tinyvit.exercises.catalogue import BY_TOPIC, describe, find, names
from tinyvit.exercises.exercise import sources

SCHEMA = 3
# The test with points, on other numbers each time: students don't get its hidden part. The checker is loaded again
# there, so that `exercises.check = …` in a student's cell has no effect.
TEST = '''assert exercises.check("{name}", {name})
### BEGIN HIDDEN TESTS
import importlib
import secrets

from tinyvit.exercises import checking

assert importlib.reload(checking).check("{name}", {name}, seed=secrets.randbits(32))
### END HIDDEN TESTS'''


def assignments(exercises=(), points=1):
    """nbformat's notebooks by the name of their topic, for the exercises of these names; all if none are given.

    Raises ValueError for an unknown name.
    """
    wanted = [find(name).name for name in exercises] or names()
    chosen = {topic: [one for one in own if one.name in wanted] for topic, own in BY_TOPIC.items()}
    return {topic: notebook(own, points) for topic, own in chosen.items() if own}


def notebook(exercises, points):
    """A notebook of these exercises, as plain dicts and lists."""
    title = "# " + ", ".join(exercise.name.replace("_", " ") for exercise in exercises)
    cells = [
        cell("markdown", f"{title}\n\nWrite the functions in NumPy.", "about", locked=True),
        cell("code", "import numpy as np\n\nfrom tinyvit import exercises", "imports", locked=True),
    ]
    for exercise in exercises:
        name = exercise.name
        cells += [
            cell("markdown", f"## {name}\n\n```\n{describe(name)}\n```", f"{name}_task", locked=True),
            cell("code", solution_source(exercise), f"{name}_solution", solution=True),
            cell("code", f'exercises.check("{name}", {name});', f"{name}_check", locked=True),
            cell("code", TEST.format(name=name), f"{name}_test", locked=True, grade=True, points=points),
        ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
            "nbformat": 4, "nbformat_minor": 5}  # fmt: skip


def cell(kind, source, name, locked=False, solution=False, grade=False, points=None):
    """A cell with nbgrader's metadata."""
    metadata = {"schema_version": SCHEMA, "grade_id": name, "grade": grade, "locked": locked, "solution": solution,
                "task": False}  # fmt: skip
    if points is not None:
        metadata["points"] = points
    made = {"cell_type": kind, "id": hashlib.sha256(name.encode()).hexdigest()[:12],
            "metadata": {"nbgrader": metadata}, "source": source.splitlines(keepends=True)}  # fmt: skip
    return made | ({"execution_count": None, "outputs": []} if kind == "code" else {})


def solution_source(exercise):
    """The solution's cell: a function in which nbgrader takes out what lies between the marks.

    The functions that the solution calls stand inside it.
    """
    texts = dict(sources(exercise.right))
    head, _, body = texts.pop(exercise.name).rstrip().partition("\n")
    helpers = [textwrap.indent(text, "    ") for text in texts.values()]
    return "\n".join([head, "    ### BEGIN SOLUTION", *helpers, body, "    ### END SOLUTION"])
