"""Each mistake, made on purpose, is recognised by its name."""

import math

import numpy as np
import pytest

from tinyvit import exercises
from tinyvit import functional as F
from tinyvit.exercises.catalogue import EXERCISES

TABLE = [(exercise, mistake) for exercise in EXERCISES.values() for mistake in exercise.mistakes]


@pytest.mark.parametrize("exercise, mistake, seed", [
    pytest.param(e, m, seed, id=f"{e.name}: {m.name}, {seed}", marks=pytest.mark.full if (i + seed) % 3 else ())
    for i, (e, m) in enumerate(TABLE) for seed in range(3)
])  # fmt: skip
def test_every_mistake_in_the_tables_is_recognised(exercise, mistake, seed):
    solution = {line.strip() for line in exercises.solution(exercise.name).splitlines() if " = " in line}
    report = exercises.check(exercise.name, mistake.formula, seed=seed)
    assert not any(line in report.answer for line in solution)
    assert not report and report.mistakes == (mistake.name,), report
    assert f"like this mistake: {mistake.name}." in " ".join(report.answer.split())


def test_every_exercise_has_its_mistakes():
    assert all(len(exercise.mistakes) >= 4 for exercise in EXERCISES.values())


# -- mistakes of any exercise ---------------------------------------------------------------------------------------


SILU = EXERCISES["silu_backward"].right


def linear_backward(dx=lambda x: x, dweight=lambda x: x, dbias=lambda x: x):
    def function(*arguments):
        right = EXERCISES["linear_backward"].right(*arguments)
        return tuple(change(gradient) for change, gradient in zip((dx, dweight, dbias), right))

    return function


def averaged(dy, x, weight):
    dx, dweight, dbias = EXERCISES["linear_backward"].right(dy, x, weight)
    return dx, dweight / (x.size // x.shape[-1]), dbias


def exchanged(*arguments):
    dq, dk, dv = EXERCISES["attention_backward"].right(*arguments)
    return dk, dq, dv


@pytest.mark.parametrize(
    "name, function, mistake, said",
    [
        ("linear_backward", linear_backward(dx=np.negative), "the sign is wrong", "minus"),
        ("linear_backward", averaged, "a constant factor", r"1/(B·N)"),
        ("linear_backward", linear_backward(dx=lambda x: x * 0.7), "a constant factor", "0.7 times what it should be:"),
        ("linear_backward", linear_backward(dx=lambda x: x.transpose(1, 0, 2)), "transposed", "(1, 0, 2)"),
        ("linear_backward", linear_backward(dbias=lambda x: x[None]), "another shape", "(5,)"),
        ("linear_backward", linear_backward(dx=lambda x: x.sum(0)), "summed over too much", "axes (0,)"),
        ("linear_backward", linear_backward(dx=lambda x: x * 0), "zeros", "It is zero everywhere"),
        ("linear_backward", linear_backward(dx=lambda x: x + np.nan), "NaN or infinite", "0/0"),
        ("linear_backward", lambda dy, *given: (given[0] * 0, given[1] * 0, np.zeros(dy.shape[-1])),
         "nothing is written yet", "as starter code does"),
        ("adam", lambda theta, g, m, v, *_: (theta, m, v), "an argument, unchanged", "theta, m and v look like"),
        ("linear_backward", linear_backward(dx=lambda x: x.astype(int)), "integers", "int64"),
        ("gelu", lambda x: F.gelu(x + 1e-7)[0], "right to a few digits only", "finite difference"),
        ("silu_backward", lambda dy, x: SILU(np.ones_like(x), x), "dy is forgotten", "chain rule"),
        ("softmax", lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True), "the row's maximum is not subtracted",
         "Right on ordinary numbers; not right with rows near 1000"),
        ("gelu", lambda x: 0.5 * x * (1 + math.erf(x / 2**0.5)), "a function of one number gets an array",
         "scipy.special.erf takes arrays"),
        ("attention_backward", exchanged, "the outputs stand in another order", "What you return as dq is dk"),
    ],
)  # fmt: skip
def test_mistakes_that_can_be_made_in_any_exercise_are_recognised(name, function, mistake, said):
    report = exercises.check(name, function)
    assert not report and mistake in report.mistakes, report
    assert said.rstrip(":") in " ".join(report.answer.split())


def test_a_true_zero_is_printed_as_zero():
    def with_a_key_bias(*arguments):
        outputs = EXERCISES["multi_head_attention_backward"].right(*arguments)
        outputs[2][len(outputs[2]) // 3 + 1] = 0.5  # the bias of the keys has no gradient, up to rounding
        return outputs

    assert "should be 0 and is 0.5" in exercises.check("multi_head_attention_backward", with_a_key_bias).answer


def test_an_unknown_mistake_gets_its_place_but_no_name():
    def one_entry(dweight):
        dweight[3, 2] += 0.5
        return dweight

    report = exercises.check("linear_backward", linear_backward(dweight=one_entry))
    assert not report and report.mistakes == ()
    assert "dweight  wrong in 1 of 30 entries: entry (3, 2) should be" in report.answer
    assert "dx       right" in report.answer and "mistake" not in report.answer


def test_hard_coded_sizes_are_found():
    def softmax_of_four(x):
        exps = np.exp(x - x.max(-1, keepdims=True))
        return exps / (exps.mean(-1, keepdims=True) * 4)

    report = exercises.check("softmax", softmax_of_four)
    assert not report and report.mistakes == ("wrong only with other sizes (a size of yours?)",)
