"""Whatever a learner's function does, it gets one helpful answer and no traceback."""

import numpy as np
import pytest

from tinyvit import exercises
from tinyvit import functional as F
from tinyvit.exercises.catalogue import EXERCISES


def softmax(x):
    return F.softmax(x)[0]


def linear_backward(*values):
    return lambda dy, x, weight: values


def raises(error):
    def function(x):
        raise error

    return function


def generator(x):
    yield x


def recursive(x):
    return recursive(x)


def in_place(theta, g, m, v, *rest):
    m *= 0.9
    v *= 0.9
    return theta, m, v


def of_4_channels(x, weight, bias):
    return (x.reshape(-1, 4 if x.shape[2] == 4 else 3) @ weight.T).reshape(x.shape) + bias


DY, X, W = np.ones((2, 3, 5)), np.ones((2, 3, 4)), np.ones((5, 4))


@pytest.mark.parametrize(
    "name, function, said",
    [
        ("softmax", lambda x: None, "It returned None; expected probs alone. Is a `return` missing at its end?"),
        ("softmax", lambda x: F.softmax(x), "It returned a tuple of 2; expected probs alone, without a cache"),
        ("softmax", lambda x: F.softmax(x)[0].tolist(), "probs is a list; expected a NumPy array (3, 4); np.array(…)"),
        ("softmax", lambda x: softmax(x) + 0j, "probs has the dtype complex128; expected real numbers, float64."),
        ("softmax", lambda x: x > 0, "probs has the dtype bool; expected real numbers"),
        ("softmax", raises(ValueError("Did you mean?")), "(raise error): Did you mean? It was given x (3, 4)."),
        ("softmax", raises(ValueError("Mind the dimensions.")), "(raise error): Mind the dimensions. It was given"),
        ("layernorm", lambda *a: 1 / 0, "by zero. It was given x (2, 3, 5), weight (5,), bias (5,), eps = 0."),
        ("softmax", lambda x: "probs", "probs is a str; expected a NumPy array (3, 4)."),
        ("softmax", generator, "probs is a generator, as of a function with `yield`"),
        ("softmax", lambda x: x * np.nan, "wrong in 12 of 12 entries: entry (0, 0) should be 0.229252 and is nan"),
        ("softmax", lambda: None, "It is called as softmax(x), by position, and yours takes (): too many positional"),
        ("softmax", lambda x, axis: None, "and yours takes (x, axis): missing a required argument: 'axis'."),
        ("softmax", raises(SystemExit(1)), "It raised SystemExit in line {line} (raise error): 1."),
        ("softmax", lambda x: x[7], "It raised IndexError in line"),
        ("softmax", len, "probs is an int; expected a NumPy array"),
        ("softmax", raises(NotImplementedError()), "like this mistake: nothing is written yet."),
        ("softmax_backward", lambda dy, x: dy * my_softmax(x), "write the forward of my_softmax anew"),  # noqa: F821
        ("softmax", recursive, "It raised RecursionError"),
        ("adam", in_place, "It changes m and v in place"),
        ("linear", of_4_channels, "With equal sizes it is right."),
        ("linear_backward", lambda dy, x, weight: None, "It returned None; expected 3 values, dx, dweight, dbias."),
        ("linear_backward", lambda dy, x, weight: dy @ weight, "It returned one array (3, 4, 6); expected 3 values"),
        ("linear_backward", linear_backward(X), "It returned 1 value; expected 3 values, dx, dweight, dbias."),
        ("linear_backward", linear_backward(X, W, 0.5), "dbias has the shape (), and should have (5,)"),
        ("schedule", lambda step, *_: None if step == 7 else 1.0, "at its end? That was at step 7."),
        ("schedule", lambda *_: "1", "factor is a str; expected a number. That was at step 0."),
        ("schedule", lambda step, *_: 1 / (step - 4), "It was given step = 4, total = 1000, warmup = 100."),
        ("derivative", lambda f, x: f(x)[0], "It was given f = exp, x = "),
        ("derivative", lambda f, x: f(x + 1j), "dfdx has the dtype complex128; expected real numbers"),
        ("cross_entropy", lambda *_: np.ones(1), "loss has the shape (1,), and should have ()"),
        ("block_backward", lambda *_: (X, X), "gradients is one array (2, 3, 4); expected a dict of 12 arrays by"),
        ("block_backward", lambda *_: (X, {"bias": X}), "gradients lacks norm1.weight, norm1.bias"),
    ],
)  # fmt: skip
def test_a_wrong_function_is_told_what_it_did(name, function, said):
    report = exercises.check(name, function)
    answer = " ".join(report.answer.split())
    line = raises.__code__.co_firstlineno + 2
    assert not report and answer.startswith(f"{name}: not right yet.") and said.replace("{line}", str(line)) in answer
    assert "Traceback" not in answer


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("change", [lambda y: y * 1e308, lambda y: np.where(y > y.mean(), np.inf, -np.inf)])
def test_numpys_overflow_warnings_are_not_shown(change):
    for name in ("softmax", "linear", "layernorm"):
        assert not exercises.check(name, lambda *arguments, name=name: change(EXERCISES[name].right(*arguments)))


def test_a_function_that_raises_is_not_said_to_be_wrong_with_equal_sizes_only():
    def layernorm(x, weight, bias, eps):
        return (x - x.mean((0, 2))) / np.sqrt(x.var((0, 2)) + eps) * weight + 2 * bias

    report = exercises.check("layernorm", layernorm)
    assert report.mistakes == () and "It raised ValueError" in report.answer and "equal sizes" not in report.answer


def test_an_exception_comes_with_the_learners_line_and_the_shapes_and_is_kept():
    def mean_of_rows(rows):
        return rows.mean(axis=5)  # deep inside of NumPy it fails

    def function(x):
        return mean_of_rows(x)

    report = exercises.check("softmax", function)
    assert "(return rows.mean(axis=5)" in report.answer and "It was given x (3, 4)." in report.answer
    assert isinstance(report.exception, np.exceptions.AxisError)
    with pytest.raises(np.exceptions.AxisError) as raised:
        raise report.exception
    assert "mean_of_rows" in [entry.name for entry in raised.traceback]


def test_each_call_gets_arrays_of_its_own_and_the_same_numbers():
    seen = []

    def function(x):
        seen.append(x.copy())
        x[:] = 0
        return x

    exercises.check("softmax", function)
    exercises.check("softmax", function)
    np.testing.assert_array_equal(seen[0], seen[len(seen) // 2])
    assert seen[0].any() and seen[0].dtype == "float64"


@pytest.mark.parametrize("arguments, error, said", [
    (("sofmax", softmax), ValueError, r"there is no exercise 'sofmax'; did you mean softmax\?"),
    ((["softmax"], softmax), ValueError, "there is no exercise"),
    (("softmax", W), TypeError, r'got ndarray; write check\("softmax", my_function\), without calling it'),
    (("softmax", softmax, 0), ValueError, "expected a time limit in seconds above 0"),
    (("softmax", softmax, np.inf), ValueError, "expected a time limit in seconds above 0"),
])  # fmt: skip
def test_what_is_no_exercise_no_function_no_seed_or_no_limit_is_an_error(arguments, error, said):
    with pytest.raises(error, match=said):
        exercises.check(*arguments)


def test_an_exception_with_any_message_gets_an_answer():
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError

    answers = [exercises.check("softmax", raises(error)).answer for error in (Mute(), ValueError("many words " * 500))]
    assert "It raised Mute" in answers[0] and "(its message can't be read)" in answers[0] and len(answers[1]) < 800


def test_three_lines_of_the_functions_output_are_shown():
    answer = exercises.check("softmax", lambda x: print(*range(50), sep="\n")).answer
    assert "  | 2\n  | …" in answer and "| 3" not in answer
