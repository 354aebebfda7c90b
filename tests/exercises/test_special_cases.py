"""A function that is right for some inputs only does not pass."""

import numpy as np
import pytest

from tinyvit import exercises
from tinyvit.exercises.catalogue import EXERCISES

LARGE = ("vit", "vit_backward", "block", "block_backward")
SCALARS = [
    pytest.param(name, argument, marks=pytest.mark.full if name in LARGE else ())
    for name, exercise in EXERCISES.items()
    for position, argument in enumerate(exercise.arguments)
    if not isinstance(exercise.draw(exercise.known_cases[0])[position], (np.ndarray, dict))
]


@pytest.fixture(autouse=True)
def no_kinds(monkeypatch):
    """That search takes seconds, for words that no test here reads."""
    monkeypatch.setattr("tinyvit.exercises.recognise.kinds_of_mistakes", lambda name: [])


def with_arrays(change, value):
    """The arrays among outputs (one, several, or in a dict) after a change."""
    if isinstance(value, dict):
        return {name: with_arrays(change, array) for name, array in value.items()}
    if isinstance(value, tuple):
        return tuple(with_arrays(change, output) for output in value)
    return change(value)


@pytest.mark.parametrize("name, argument", SCALARS)
def test_a_constant_in_place_of_an_argument_is_refused(name, argument):
    exercise = EXERCISES[name]
    position = list(exercise.arguments).index(argument)
    first = exercise.draw(exercise.known_cases[0])
    constant = (first if exercise.calls is None else exercise.calls(*first)[0])[position]

    def function(*arguments):
        return exercise.right(*arguments[:position], constant, *arguments[position + 1 :])

    assert not exercises.check(name, function)


@pytest.mark.parametrize("name", EXERCISES)
def test_every_argument_that_an_exercise_changes_in_place_is_named(name):
    exercise = EXERCISES[name]
    for position, argument in enumerate(exercise.arguments):
        given = exercise.draw(exercise.known_cases[0])[position]
        if isinstance(given, (np.ndarray, dict)):

            def function(*arguments, position=position):
                value = with_arrays(np.copy, exercise.right(*arguments))
                array = arguments[position]
                array = next(iter(array.values())) if isinstance(array, dict) else array
                array[...] = array[::-1] if len(array) > 1 else array + 1
                return value

            report = exercises.check(name, function)
            assert report.mistakes == ("inputs are changed in place",)
            assert f"It changes {argument} in place" in report.answer and "What it returns is right" in report.answer


@pytest.mark.parametrize("name", [name for name in EXERCISES if name not in ("kahan_sum", "window_mask")])
def test_a_result_in_float32_is_refused(name):
    exercise = EXERCISES[name]

    def function(*arguments):
        return with_arrays(np.float32, exercise.right(*arguments))

    # Cutting and pasting, or a matrix for one patch, is exact in float32 too; on random numbers it isn't.
    assert not exercises.check(name, function)


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name, exercise in EXERCISES.items()
                                  if exercise.calls is None and name not in ("kahan_sum", "derivative")])  # fmt: skip
def test_an_unknown_error_is_refused_and_gets_no_name(name):
    def function(*arguments):
        random = np.random.default_rng(5)
        return with_arrays(lambda x: x + random.uniform(0.5, 1, np.shape(x)), EXERCISES[name].right(*arguments))

    report = exercises.check(name, function)
    assert not report and report.mistakes == (), report


# Their results have no axis for the samples.
SUMMED = (
    "cross_entropy", "embedding_backward", "embed_labels_backward", "mixup_loss", "distillation", "mae_loss",
    "dino_loss", "pixel_cross_entropy",
)  # fmt: skip


@pytest.mark.parametrize("name", [name for name, exercise in EXERCISES.items()
                                  if "B" in exercise.domain.split() and name not in SUMMED])  # fmt: skip
def test_a_result_without_its_axes_of_length_1_is_refused(name):
    exercise = EXERCISES[name]
    assert not exercises.check(name, lambda *arguments: with_arrays(np.squeeze, exercise.right(*arguments)))


@pytest.mark.parametrize("name", ["softmax", "softmax_backward", "gelu"])
def test_a_function_for_matrices_alone_is_refused_where_any_number_of_axes_is_required(name):
    right = EXERCISES[name].right
    assert not exercises.check(name, lambda *arrays: right(*arrays) if arrays[0].ndim == 2 else arrays[0])


def test_batches_with_a_repeated_label_are_tried():
    exercise = EXERCISES["cross_entropy_backward"]
    assert any(len(set(labels)) < len(labels) for _, _, labels, _ in map(exercise.draw, exercise.cases()))
