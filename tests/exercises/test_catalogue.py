"""Descriptions of the exercises, which don't reveal solutions."""

import pytest

from tinyvit import exercises
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
    assert "def " not in text


@pytest.mark.parametrize("name", EXERCISES)
def test_arguments_and_results_are_as_many_as_described(name):
    exercise = EXERCISES[name]
    for case in exercise.cases():
        arguments = exercise.draw(case)
        assert len(arguments) == len(exercise.arguments)
        right = exercise.answer(exercise.right, arguments)
        assert len(exercise.returns) == (len(right) if isinstance(right, tuple) else 1)
