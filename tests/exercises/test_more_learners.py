"""Solutions of `learners.txt`, of which the tables of mistakes weren't made: wrong ones get a name or a place.

The first ones were written from the tasks alone; those below `= after` were new to `slips` when it was first run.
"""

import contextlib
import io
import math
from pathlib import Path

import numpy as np
import pytest
import scipy.special

from tinyvit import exercises
from tinyvit.exercises import slips
from tinyvit.exercises.catalogue import EXERCISES

BOUND = 0.95  # of all wrong ones; before `slips` 0.79 of the first ones were answered, and with it 0.88 of the new ones
FEW = "rmsnorm_backward", "scale_and_shift_backward"  # in each test run


def solutions():
    """[(exercise, whether it is right, source)]"""
    parts, made = {}, []
    for section in (Path(__file__).parent / "learners.txt").read_text().split("\n= ")[1:]:
        (name, *used), *lines = [line.split() if not i else line for i, line in enumerate(section.split("\n"))]
        changes = [line for line in lines if line[:2] in ("+ ", "- ")]
        source = "\n".join([*(parts[one] for one in used), *(line for line in lines if line not in changes), ""])
        parts[name] = source
        if name not in EXERCISES:
            continue
        made.append((name, True, source))
        for change in changes:
            old, _, new = (change[2:] + " ").replace("\\n", "\n").partition(" => ")
            changed = source.replace(old, new[:-1])
            assert changed != source, change
            made.append((name, change[0] == "+", changed))
    return made


SOLUTIONS = solutions()


def checked(name, source):
    space = {"np": np, "math": math, "scipy": scipy}
    exec(source, space)
    with contextlib.redirect_stdout(io.StringIO()):
        return exercises.check(name, space["f"])


def is_answered(report):
    """Whether the mistake has a name or a place: also the line that raised, and an output's wrong shape."""
    return bool(report.mistakes or report.located) or " in line " in report.answer or "has the shape" in report.answer


@pytest.mark.full
def test_right_solutions_are_accepted_and_nearly_all_wrong_ones_are_named_or_located():
    reports = [(name, right, source, checked(name, source)) for name, right, source in SOLUTIONS]
    assert not [(name, source) for name, right, source, report in reports if bool(report) != right]
    wrong = [report for _, right, _, report in reports if not right]
    assert len(wrong) > 400 and len(reports) - len(wrong) > 100
    answered = sum(map(is_answered, wrong))
    assert answered / len(wrong) >= BOUND, f"{answered} of {len(wrong)}"


@pytest.mark.parametrize("name", FEW)
def test_the_solutions_of_a_few_exercises_are_told_apart(name):
    for exercise, right, source in SOLUTIONS:
        if exercise == name:
            assert bool(checked(name, source)) == right, source


def test_a_slip_is_answered_with_the_step_that_gives_the_learners_numbers():
    def f(dy, x, weight, eps):
        r = ((x * x).mean(-1, keepdims=True) + eps) ** -0.5
        return r * dy * weight - r**3 * x * (dy * x).mean(-1, keepdims=True), (dy * x * r).sum((0, 1))

    report = exercises.check("rmsnorm_backward", f)
    assert not report and not report.mistakes
    assert "`dy * xhat`" in " ".join(report.located) and "isn't right" in report.located[0]


@pytest.mark.parametrize("name", ["softmax_backward", "rmsnorm", "embed_backward", "cutmix"])
def test_a_right_solution_is_no_slip_and_the_solution_itself_stays_as_it_is(name):
    exercise = EXERCISES[name]
    case, text = exercise.cases()[0], exercises.solution(name)
    right = exercise.labelled(exercise.right(*exercise.draw(case)))
    made = {key: array + 1.5 * np.arange(array.size).reshape(array.shape) for key, array in right.items()}
    assert slips.slips(exercise, case, lambda: exercise.draw(case), made, list(made)) == []
    assert exercises.solution(name) == text
