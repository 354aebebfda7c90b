"""The first wrong one of a learner's intermediates is named, and what was right before it."""

import ast
import re

import numpy as np
import pytest

from tinyvit import exercises
from tinyvit.exercises.catalogue import EXERCISES
from tinyvit.exercises.exercise import sources
from tinyvit.exercises.steps import expected_steps

STEPS = [name for name, exercise in EXERCISES.items() if exercise.steps]


def test_every_exercise_whose_solution_has_an_array_before_its_result_has_steps():
    """Not those that only loop, index or reshape."""
    for exercise in EXERCISES.values():
        own = ast.parse(sources(exercise.right)[exercise.name]).body[0].body
        values = [one.value for one in own if isinstance(one, ast.Assign) and not isinstance(one.value, ast.Tuple)]
        made = [ast.unparse(value) for value in values if isinstance(value, (ast.BinOp, ast.Call))]
        looped = any(isinstance(one, ast.For) for one in own)
        plain = [text for text in made if not re.search(r"reshape|ndindex|repeat|copy|arange\(|len\(|zeros|//", text)]
        assert exercise.steps or looped or not plain, exercise.name


def values(name, seed=0):
    """The right steps of a seed's arguments, as a learner's function gives them."""
    return lambda *arguments: {step: value.copy() for step, (_, value) in expected_steps(name, seed).items()}


def with_wrong(name, wrong, stop=False):
    """Right up to one step, and from there on with other numbers."""

    def function(*arguments):
        spoilt = False
        for step, value in values(name)(*arguments).items():
            spoilt |= step == wrong
            yield step, value + 0.1 * np.random.default_rng(0).standard_normal(value.shape) * spoilt
        if stop:
            raise RuntimeError("no more")

    return function


@pytest.mark.parametrize("name", STEPS)
def test_the_steps_lead_to_the_exercises_right_answer(name):
    exercise = EXERCISES[name]
    arguments = exercise.draw(exercise.known_cases[0])
    outputs = exercise.label_outputs(exercise.right(*arguments))
    steps = {step: value for step, (_, value) in expected_steps(name).items()}
    for step in steps.keys() & outputs.keys():
        np.testing.assert_allclose(steps[step], outputs[step], rtol=1e-12, atol=1e-12)
    *_, last = steps.values()
    same = [output for output in outputs.values() if output.shape == last.shape]
    assert any(np.allclose(last, output, rtol=1e-12, atol=1e-12) for output in same)


@pytest.mark.parametrize("name", STEPS)
def test_right_steps_are_right_for_every_seed(name, capsys):
    for seed in range(3):
        report = exercises.check_steps(name, values(name, seed), seed=seed)
        assert report and f"all {len(expected_steps(name))} steps are right" in capsys.readouterr().out


@pytest.mark.parametrize("name", STEPS)
def test_the_first_wrong_step_is_named_and_the_last_right_one(name):
    in_order, way = list(expected_steps(name)), "back" if name.endswith("_backward") else "up"
    for i, step in enumerate(in_order):
        for function in (with_wrong(name, step), lambda *given, step=step: dict(with_wrong(name, step)(*given))):
            report = exercises.check_steps(name, function)
            said = f"not right yet. Right {way} to {in_order[i - 1]}; f" if i else "F"
            assert not report and f"{said}irst wrong at {step}." in report.answer


def test_steps_may_be_yielded_in_an_array_that_is_changed_afterwards():
    def layernorm(x, weight, bias, eps):
        y = x - x.mean(-1, keepdims=True)
        yield "centred", y
        rstd = 1 / np.sqrt(x.var(-1, keepdims=True) + eps)
        yield "rstd", rstd
        y *= rstd
        yield "xhat", y
        yield "y", y * weight + bias

    assert exercises.check_steps("layernorm", layernorm)


def said(function, name="attention", **options):
    report = exercises.check_steps(name, function, **options)
    assert not report
    return " ".join(report.answer.split())


SCORES = "scores", np.ones((2, 3, 4, 5))


@pytest.mark.parametrize("make, expected", [
    (lambda steps: steps | {"scoers": np.ones(3)}, "There is no step scoers; the steps are scores, probs, heads"),
    (lambda steps: {"scores": steps["scores"]}, "up to scores; nothing wrong in what it gave. Missing: probs, heads."),
    (lambda steps: {"heads": 2 * steps["heads"]}, "You gave nothing for scores, probs: the mistake is there or"),
    (lambda steps: {"heads": 2 * steps["heads"]}, "a constant factor"),
    (lambda steps: steps | {"probs": np.ones((2, 3, 5, 4))}, "probs has the shape (2, 3, 5, 4), and should have (3,"),
    (lambda steps: steps | {"probs": [1, 2]}, "probs is a list; expected a NumPy array (3, 4, 6, 5)"),
    (lambda steps: steps | {"scores": steps["scores"].mT}, "the axes are in the order (0, 1, 3, 2)"),
    (lambda steps: None, "It returned None; return a dict of arrays"),
    (lambda steps: steps["scores"], "It returned one array (3, 4, 6, 5); return a dict"),
    (lambda steps: {}, "It gave no steps"),
    (lambda steps: [steps["scores"]], "where a name and an array were expected"),
    (lambda steps: [SCORES, SCORES], "It gave scores twice."),
])  # fmt: skip
def test_what_is_wrong_missing_or_of_another_form_is_said(make, expected):
    assert expected in said(lambda q, k, v: make(values("attention")(q, k, v)))


def test_what_was_given_before_an_error_or_an_endless_loop_is_compared():
    report = exercises.check_steps("block", with_wrong("block", "nowhere", stop=True))
    assert "Right up to sum2" in report.answer and ") after sum2: no more." in report.answer
    assert isinstance(report.exception, RuntimeError) and not report
    wrong = said(with_wrong("block", "norm2", stop=True), "block")
    assert "Right up to sum1; first wrong at norm2." in wrong and "It raised RuntimeError" in wrong

    def endless(*arguments):
        yield "scores", values("attention")(*arguments)["scores"]
        while True:
            pass

    answer = said(endless, time_limit=0.3)
    assert "Right up to scores" in answer and "It did not return after scores" in answer and "0.3 seconds" in answer


@pytest.mark.parametrize("name", STEPS)
def test_a_list_of_the_steps_has_their_names_and_shapes(name):
    text = exercises.steps(name)
    for step, (_, value) in expected_steps(name).items():
        assert f"  {step} " in text and str(value.shape) in text


def test_bad_arguments_are_refused():
    for ask in (exercises.steps, lambda name: exercises.check_steps(name, print)):
        with pytest.raises(ValueError, match="the exercise 'linear' has no steps; all have some but these: scale_and"):
            ask("linear")
        with pytest.raises(ValueError, match="did you mean block"):
            ask("blok")
    with pytest.raises(TypeError, match="your function itself, got dict"):
        exercises.check_steps("block", {})
