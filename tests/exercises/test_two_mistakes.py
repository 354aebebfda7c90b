"""Two mistakes in one function are both named, whether in one output or in several."""

from itertools import combinations

import numpy as np
import pytest

from tinyvit import exercises
from tinyvit.exercises.catalogue import EXERCISES
from tinyvit.exercises.exercise import edit_solution


def softmax(scores):
    exps = np.exp(scores)
    return exps / exps.sum(-1, keepdims=True)


# -- mistakes as learners write them, independent of the exercises' tables -------------------------------------------


def layernorm_backward(mean_terms=True, rows=lambda x: x.sum((0, 1)), of="xhat", sign=1):
    def function(dy, x, weight, eps):
        std = np.sqrt(x.var(-1)[..., None] + eps)
        xhat = (x - x.mean(-1)[..., None]) / std
        g = dy * weight
        dx = g / std
        if mean_terms:
            dx = dx - (g.mean(-1)[..., None] + xhat * (g * xhat).mean(-1)[..., None]) / std
        return sign * dx, rows(dy * {"xhat": xhat, "x": x}[of]), rows(dy)

    return function


def adam(theta, g, m, v, t, lr, beta1, beta2, eps):
    m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2
    return theta + lr * m / (1 - beta1**t) / (v / (1 - beta2**t) + eps), m, v


def rollout(attention):
    rolled = np.eye(attention.shape[-1])
    for layer in attention.mean(2):
        rolled = rolled @ layer
    return rolled


@pytest.mark.parametrize("name, function, mistakes", [
    ("layernorm_backward", layernorm_backward(mean_terms=False, sign=-1),
     {"the terms with means are missing", "the sign is wrong"}),
    ("layernorm_backward", layernorm_backward(rows=lambda x: x.mean((0, 1)), of="x"),
     {"x in place of x̂ in dweight", "the gradients of weight and bias are means"}),
    ("adam", adam, {"uphill", "the square root is forgotten"}),
    ("attention", lambda q, k, v: softmax((q @ k.mT).mT).mT @ v, {"softmax over the queries", "the scale 1/√d is"}),
    ("linear", lambda x, weight, bias: x @ weight, {"weight is not transposed", "bias is forgotten"}),
    ("linear_backward", lambda dy, x, W: (dy @ W, np.tensordot(x, dy, 2 * [[0, 1]]) / len(x), dy.sum((0, 1))),
     {"wrong transpose in dweight", "a constant factor"}),
    ("gelu", lambda x: 2 * np.tanh(x) * x, set()),
    ("rollout", rollout, {"the product in the wrong order", "the residual connection is forgotten"}),
])  # fmt: skip
def test_two_mistakes_as_a_learner_makes_them_are_both_named(name, function, mistakes):
    report = exercises.check(name, function)
    answer = " ".join(report.answer.split())
    assert not report and len(report.mistakes) == len(mistakes), report
    for mistake in mistakes:
        assert any(found.startswith(mistake) for found in report.mistakes)
        assert f"like this mistake: {mistake}" in answer or f"Together with it, this one: {mistake}" in answer


# -- pairs of the exercises' mistakes ---------------------------------------------------------------------------------


def pairs_of(exercise):
    """Pairs of mistakes whose edits give the same in either order, and not what one gives alone; of many, some."""
    alone = [exercise.evaluate(mistake.formula, drawn(exercise)) for mistake in exercise.mistakes]
    pairs = list(combinations(exercise.mistakes, 2))
    for one, other in pairs[:: max(5, len(pairs) // 8) if len(pairs) > 10 else 1]:
        try:
            together = edit_solution(exercise.right, one.edits + other.edits)
            turned = edit_solution(exercise.right, other.edits + one.edits)
        except ValueError:  # one of them edits what the other has edited
            continue
        outputs = exercise.evaluate(together, drawn(exercise))
        same = outputs and made_alike(outputs, exercise.evaluate(turned, drawn(exercise)))
        zeros = not all(array.any() for array in outputs.values())  # zeros look like no mistake in particular
        if same and not zeros and not any(made_alike(outputs, others) for others in alone):
            yield {one.name, other.name}, together


def drawn(exercise):
    return exercise.draw(exercise.known_cases[0])


def made_alike(together, outputs):
    return outputs and all(np.array_equal(together[name].round(9), outputs[name].round(9)) for name in outputs)


@pytest.mark.full
def test_nearly_all_pairs_of_all_exercises_are_named():
    """Some pairs give the numbers of others, and one of their names will do."""
    named = []
    for exercise in EXERCISES.values():
        for names, together in pairs_of(exercise):
            report = exercises.check(exercise.name, together)
            assert not report and report.mistakes, (exercise.name, names)
            named.append(set(report.mistakes) == names)
    assert len(named) > 150 and sum(named) >= 0.95 * len(named)
