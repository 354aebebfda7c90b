"""A kind of mistakes has one name in all exercises, and none is given by chance."""

import numpy as np
import pytest

from tinyvit import exercises
from tinyvit.exercises.catalogue import EXERCISES
from tinyvit.exercises.kinds import MAX_STEP, rules


def right(name):
    return EXERCISES[name].right


def layernorm(x, weight, bias, eps):
    return right("layernorm")(x, 1 + weight, bias, eps)


def scale_channels_backward(dy, x, weight):
    return dy * weight, (dy * x).sum((2, 3))


def window_partition(x, window, shift):
    return right("window_partition")(np.roll(x, (-shift, -shift), (0, 1)), window, 0)


def group_norm(x, weight, bias, num_groups, eps):
    return right("group_norm")(x, weight, bias, x.shape[1] // num_groups, eps)


@pytest.mark.parametrize("function, kind", [
    (layernorm, "1 is added to a factor"),
    (scale_channels_backward, "broadcast along other axes"),
    (window_partition, "a sum, mean or maximum over other axes"),
    (group_norm, "an option is not used as it was given"),
])  # fmt: skip
def test_a_kind_of_mistake_is_named_wherever_its_pattern_stands(function, kind):
    name = function.__name__
    for seed in range(3):
        report = exercises.check(name, function, seed=seed)
        assert not report and report.mistakes == (kind,), report
        assert f"like this mistake: {kind}." in report.answer
        assert all(len(step) <= MAX_STEP for step in report.answer.split("`")[1::2])


def test_every_kind_has_a_hint_and_a_name_of_its_own():
    kinds = {name: hint for name, hint, *_ in rules()}
    assert len(kinds) > 50 and all(hint.endswith((".", "?")) for hint in kinds.values())


def test_a_candidate_that_fits_one_set_of_sizes_by_chance_is_not_named():
    def linear_backward(dy, x, weight):
        dx, dweight, dbias = right("linear_backward")(dy, x, weight)
        return dx, dweight * len(x) / 3 * 0.75, dbias  # three quarters, where B is 3

    report = exercises.check("linear_backward", linear_backward)
    assert not report and "1/(" not in report.answer and "√" not in report.answer


@pytest.mark.parametrize("name", ["block_backward", "vit_backward", "embed_backward", "conv2d"])
def test_an_answer_has_at_most_twelve_lines_whatever_is_wrong(name):
    def wrong(*arguments):
        print(*range(20), sep="\n")
        value = right(name)(*arguments)
        first, *others = value if isinstance(value, tuple) else (value,)
        first = first + np.arange(first.size).reshape(first.shape)
        return (first, *others) if others else first

    report = exercises.check(name, wrong)
    assert not report and len(report.answer.split("\n")) <= 12
