"""Descriptions, hints and solutions: a hint leads to the solution without giving it away, and that passes its check."""

import ast
import pkgutil

import numpy as np
import pytest

from tinyvit import exercises
from tinyvit.exercises import catalogue
from tinyvit.exercises.catalogue import EXERCISES


def test_the_modules_docstring_lists_every_exercise_with_its_arguments():
    assert list(EXERCISES) == exercises.names() and len(EXERCISES) >= 32
    for exercise in EXERCISES.values():
        assert exercise.signature in exercises.__doc__


@pytest.mark.parametrize("name", EXERCISES)
def test_a_description_names_arguments_and_results_and_shows_no_solution(name):
    exercise = EXERCISES[name]
    text = exercises.describe(name)
    assert text.startswith(exercise.signature)
    for entry in [*exercise.arguments, *exercise.returns]:
        assert f"  {entry} " in text
    assert "def " not in text and "must not be changed in place" in text


@pytest.mark.parametrize("name", EXERCISES)
def test_arguments_and_results_are_as_many_as_described(name):
    exercise = EXERCISES[name]
    for case in exercise.cases():
        arguments = exercise.draw(case)
        assert len(arguments) == len(exercise.arguments)
        right = exercise.answer(exercise.right, arguments)
        assert len(exercise.returns) == (len(right) if isinstance(right, tuple) else 1)


@pytest.mark.parametrize("name", EXERCISES)
def test_the_solution_that_is_shown_passes_the_check_also_where_numpy_raises_on_overflow(name):
    space = {}
    exec(exercises.solution(name), space)
    with np.errstate(all="raise"):
        report = exercises.check(name, space[name])
    assert report, report


@pytest.mark.parametrize("name", EXERCISES)
def test_a_solution_is_plain_numpy_with_the_arguments_that_were_asked_for(name):
    text = exercises.solution(name)
    tree = ast.parse(text)
    own = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)
    assert [argument.arg for argument in own.args.args] == list(EXERCISES[name].arguments)
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported <= {"scipy.special", "tinyvit.models"}, imported  # NumPy has no erf; the example's numbers
    assert "tinyvit.models" not in imported or name == "worked_example_backward"
    for part in filter(None, EXERCISES[name].package.split(", ")):
        assert callable(pkgutil.resolve_name(part)) and part in text.splitlines()[-1]


def test_a_solution_shows_the_functions_that_it_calls_and_no_others():
    functions = [node.name for node in ast.parse(exercises.solution("attention_backward")).body[1:]]
    assert functions == ["softmax", "softmax_backward", "attention_backward"]


@pytest.fixture
def nothing_given(monkeypatch):
    monkeypatch.setattr(catalogue, "HINTS_GIVEN", {})


def test_each_call_gives_the_next_hint_and_then_says_how_to_see_the_solution(nothing_given):
    said = [exercises.hint("softmax_backward") for _ in range(5)]
    assert len(set(said)) == 4 and said[3] == said[4]
    assert ["hint 1 of 3" in said[0], "hint 3 of 3" in said[2]] == [True, True]
    assert 'exercises.solution("softmax_backward")' in said[3]
    assert "hint 1 of 3" in exercises.hint("gelu"), "each exercise has a count of its own"


def test_a_hint_by_its_number_isnt_counted(nothing_given):
    assert exercises.hint("gelu", 3) == exercises.hint("gelu", 3)
    assert exercises.hint("gelu") == exercises.hint("gelu", 1)


def test_an_unknown_name_or_number_is_refused():
    with pytest.raises(ValueError, match="did you mean softmax"):
        exercises.hint("softmaks")
    for number in (0, 4, "1"):
        with pytest.raises(ValueError, match="expected a number from 1 to 3"):
            exercises.hint("softmax", number)


def test_every_exercise_has_a_question_a_shape_and_a_formula():
    for name, exercise in EXERCISES.items():
        question, shape, formula = exercise.hints
        assert "?" in question and len({question, shape, formula}) == 3, name
        assert "=" not in question, f"{name}: the question has a formula in it"


@pytest.mark.parametrize("name", EXERCISES)
def test_no_hint_has_the_code_of_the_solution(name):
    """No line of it, up to spaces, and nothing that Python could run as the function's body."""
    given = "".join("".join(EXERCISES[name].hints).split())
    own = next(n for n in ast.parse(exercises.solution(name)).body if getattr(n, "name", "") == name)
    lines = ["".join(ast.unparse(line).split()) for line in own.body if not isinstance(line, ast.ImportFrom)]
    assert not any(line in given or line.removeprefix("return") in given for line in lines)
    for hint in EXERCISES[name].hints:
        with pytest.raises(SyntaxError):
            ast.parse(hint)
