"""Solutions of `learners.txt`, of which the tables of mistakes weren't made: wrong ones get a name or a place."""

import contextlib
import io
import math
from pathlib import Path

import numpy as np
import pytest
import scipy.special

from tinyvit import exercises
from tinyvit.exercises import grading
from tinyvit.exercises.catalogue import EXERCISES
from tinyvit.exercises.invariants import is_broken
from tinyvit.exercises.outputs import Attempt
from tinyvit.exercises.recognise import recognise

BOUND = 0.95  # of all wrong ones
FEW = "rmsnorm_backward", "softmax_backward", "layernorm_backward", "attention", "adam", "linear_backward"


def solutions():
    """[(exercise, whether it is right, source, the mistake's name or "")]"""
    parts, made = {}, []
    for section in (Path(__file__).parent / "learners.txt").read_text().split("\n= ")[1:]:
        (name, *used), *lines = [line.split() if not i else line for i, line in enumerate(section.split("\n"))]
        changes = [line for line in lines if line[:2] in ("+ ", "- ")]
        source = "\n".join([*(parts[one] for one in used), *(line for line in lines if line not in changes), ""])
        parts[name] = source
        if name not in EXERCISES:
            continue
        made.append((name, True, source, ""))
        for change in changes:
            edit, _, mistake = change[2:].partition(" ! ")
            old, _, new = f"{edit} ".replace("\\n", "\n").partition(" => ")
            changed = source.replace(old, new[:-1])
            assert changed != source, change
            made.append((name, change[0] == "+", changed, mistake))
    return made


SOLUTIONS = solutions()


def checked(name, source, mistake):
    """The report on a source; fails unless it has the mistake's name."""
    space = {"np": np, "math": math, "scipy": scipy}
    exec(source, space)
    with contextlib.redirect_stdout(io.StringIO()):
        report = exercises.check(name, space["f"])
    assert not mistake or report.mistakes == (mistake,), report
    return report


def is_answered(report):
    """Whether the mistake has a name or a place: also the line that raised, and an output's wrong shape."""
    return bool(report.mistakes or report.located) or " in line " in report.answer or "has the shape" in report.answer


@pytest.mark.full
def test_right_solutions_are_accepted_and_nearly_all_wrong_ones_are_named_or_located():
    reports = [(name, right, source, checked(name, source, said)) for name, right, source, said in SOLUTIONS]
    assert not [(name, source) for name, right, source, report in reports if bool(report) != right]
    wrong = [report for _, right, _, report in reports if not right]
    assert len(wrong) > 400 and len(reports) - len(wrong) > 100
    answered = sum(map(is_answered, wrong))
    assert answered / len(wrong) >= BOUND, f"{answered} of {len(wrong)}"


@pytest.mark.full
def test_right_solutions_get_full_credit(tmp_path):
    for name, right, source, _ in SOLUTIONS:
        if right and "special." not in source.replace("special.erf", ""):  # no more of it is allowed
            file = tmp_path / "submission.py"
            file.write_text(f"import math\nimport numpy as np\nimport scipy.special\n{source}\ncheck({name!r}, f)\n")
            grades = grading.grade(file)
            assert grades.score == 1, f"{grades.table()}\n{source}"


@pytest.mark.parametrize("name", FEW)
def test_the_solutions_of_a_few_exercises_are_told_apart(name):
    for exercise, right, source, mistake in SOLUTIONS:
        if exercise == name:
            assert bool(checked(name, source, mistake)) == right, source


def rmsnorm_backward(dy, x, weight, eps):
    r = ((x * x).mean(-1, keepdims=True) + eps) ** -0.5
    return r * dy * weight - r**3 * x * (dy * x).mean(-1, keepdims=True), (dy * x * r).sum((0, 1))


def kahan_sum(numbers):
    total = lost = np.float32(0)
    for number in numbers:
        new = total + (number - lost)
        lost, total = new - total, new
    return total


def standardize_weight(weight, eps):
    centred = weight - weight.mean((0, 2, 3), keepdims=True)
    return centred / np.sqrt((centred**2).mean((0, 2, 3), keepdims=True) + eps)


def schedule(step, total, warmup):
    return min((step + 1) / warmup, 1.0) if step <= 0.8 * total else (total - step - 1) / (0.2 * total)


@pytest.mark.parametrize("function, said", [
    (rmsnorm_backward, "another variable stands here"),
    pytest.param(kahan_sum, "a term is forgotten", marks=pytest.mark.full),  # no two mistakes; 6 seconds
    (standardize_weight, "a sum, mean or maximum over other axes"),
])  # fmt: skip
def test_a_slip_gets_the_name_of_its_kind(function, said):
    report = exercises.check(function.__name__, function)
    assert not report and said in " ".join(report.mistakes), report


def test_what_has_no_name_is_answered_by_the_entries_that_are_wrong():
    report = exercises.check("schedule", schedule)
    assert not report.mistakes and "is at index 801 to 999 of axis 0, 199 of 1000" in " ".join(report.located)


@pytest.mark.parametrize("name", ["softmax_backward", "rmsnorm", "embed_backward", "cutmix"])
def test_what_is_no_mistake_of_any_kind_gets_no_name_and_the_solution_itself_stays_as_it_is(name):
    exercise = EXERCISES[name]
    case, text = exercise.known_cases[0], exercises.solution(name)
    right = exercise.label_outputs(exercise.right(*exercise.draw(case)))
    made = tuple(array + 1.5 * np.arange(array.size).reshape(array.shape) for array in right.values())
    attempt = Attempt(exercise, case, exercise.draw(case), made if len(made) > 1 else made[0])
    assert attempt.wrong == list(right) and recognise(attempt) == {}
    assert exercises.solution(name) == text


def test_what_has_no_name_is_answered_by_what_should_hold():
    def f(dy, x):
        p = np.exp(x - x.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        return p * (dy - (dy * p**3).sum(-1, keepdims=True))

    report = exercises.check("softmax_backward", f)
    assert not report and not report.mistakes
    assert "the rows of dx should add up to 0" in report.located[0]


def test_no_invariant_is_broken_by_a_right_answer():
    held = [exercise for exercise in EXERCISES.values() if exercise.invariants]
    assert len(held) > 8
    for exercise in held:
        for case in exercise.known_cases[:2]:
            right = exercise.label_outputs(exercise.right(*exercise.draw(case)))
            for output, sentence, residual in exercise.invariants:
                assert output in right
                assert not is_broken(exercise, residual, right, exercise.draw(case), 1e-13), (exercise.name, sentence)


def test_a_missing_keepdims_is_named_with_the_line_and_the_reason():
    def f(dy, x):
        p = np.exp(x - x.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        return p * (dy - (dy * p).sum(-1))

    report = exercises.check("softmax_backward", f)
    assert report.mistakes == ("keepdims=True is missing",), report
    answer = " ".join(report.answer.split())
    assert "It raised ValueError in line" in answer and "NumPy lines axes up from the right" in answer
