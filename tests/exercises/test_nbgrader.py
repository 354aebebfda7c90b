"""Assignments are notebooks with nbgrader's metadata, and their solutions pass their tests."""

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tinyvit.exercises import grading, nbgrader
from tinyvit.exercises.catalogue import EXERCISES, TOPICS

MADE = nbgrader.assignments()
KEYS = {"schema_version", "grade", "locked", "solution", "task", "grade_id", "points"}


def cells(notebook):
    return [(cell["metadata"]["nbgrader"], cell, "".join(cell["source"])) for cell in notebook["cells"]]


def test_there_is_a_notebook_per_topic_and_a_test_with_points_per_exercise():
    assert len(MADE) == len(TOPICS)
    tests = [about for notebook in MADE.values() for about, _, _ in cells(notebook) if about["grade"]]
    assert sorted(about["grade_id"] for about in tests) == sorted(f"{name}_test" for name in EXERCISES)
    assert all(about["points"] == 1 and about["locked"] and not about["solution"] for about in tests)


@pytest.mark.parametrize("topic", MADE)
def test_a_notebook_is_valid_and_its_cells_have_names_of_their_own(topic):
    nbformat.validate(nbformat.from_dict(MADE[topic]))
    found = cells(MADE[topic])
    assert len({about["grade_id"] for about, _, _ in found}) == len(found) == len({cell["id"] for _, cell, _ in found})
    for about, cell, source in found:
        assert about["schema_version"] == 3 and about.keys() <= KEYS
        assert ("points" in about) == about["grade"]
        assert about["solution"] == ("### BEGIN SOLUTION" in source) == ("### END SOLUTION" in source)
        assert cell["cell_type"] == "code" or not about["solution"]


def test_the_notebooks_of_some_exercises_hold_no_others():
    made = nbgrader.assignments(["softmax", "gelu_backward"], points=5)
    assert list(made) == ["softmax", "gelu"]
    assert [about["points"] for notebook in made.values() for about, _, _ in cells(notebook) if about["grade"]] == [
        5,
        5,
    ]
    with pytest.raises(ValueError, match="did you mean 'softmax'"):
        nbgrader.assignments(["softmaks"])


def test_the_solutions_in_the_notebooks_are_right(tmp_path):
    sources = [source for notebook in MADE.values() for about, _, source in cells(notebook) if about["solution"]]
    file = tmp_path / "solutions.py"
    file.write_text("\n\n".join(["import numpy as np", *sources]))
    grades = grading.grade(file, ["softmax", "attention_backward", "block_backward", "worked_example_backward"])
    assert grades.score == 1, grades.table()


def test_a_notebook_runs_with_its_solutions_and_its_tests_fail_without(capsys):
    names = {}
    for _, cell, source in cells(MADE["softmax"]):
        if cell["cell_type"] == "code":
            exec(source, names)
    with pytest.raises(AssertionError):
        names["softmax"] = lambda x: x
        exec(next(source for about, _, source in cells(MADE["softmax"]) if about["grade_id"] == "softmax_test"), names)


@pytest.mark.slow
def test_nbgrader_validates_the_notebooks_and_makes_the_students_version(tmp_path):
    """Needs the extra nbgrader."""
    from nbgrader.nbgraderformat import MetadataValidator

    for topic, notebook in MADE.items():
        MetadataValidator().validate_nb(nbformat.from_dict(notebook))
        file = tmp_path / "source" / topic / f"{topic}.ipynb"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(notebook))
    command = [sys.executable, "-m", "nbgrader", "generate_assignment", "softmax", "--create"]
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}  # it calls alembic
    subprocess.run(command, cwd=tmp_path, env=env, check=True, capture_output=True, timeout=300)
    students = (tmp_path / "release" / "softmax" / "softmax.ipynb").read_text()
    assert "raise NotImplementedError()" in students and "def softmax(x)" in students
    assert "np.exp" not in students and "randbits" not in students
