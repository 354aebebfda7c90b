"""The cases of every exercise come from its domain, and tell sizes, options and numbers apart."""

from itertools import combinations
from math import prod

import numpy as np
import pytest

from tinyvit import exercises
from tinyvit.exercises.catalogue import EXERCISES
from tinyvit.exercises.domain import read_domain

NAMES = pytest.mark.parametrize("name", EXERCISES)


@NAMES
def test_sizes_differ_and_no_two_products_or_differences_are_equal_in_both_ordinary_cases(name):
    first, second = (case.sizes for case in EXERCISES[name].known_cases[:2])
    letters = [letter for letter in first if len(letter) == 1 and letter != "t"]  # t is the number of a step of Adam's
    for sizes in (first, second):
        of_letters = [sizes[letter] for letter in letters]
        assert len({*of_letters}) == len(letters) and 2 not in of_letters, sizes
    chosen = [some for count in (1, 2, 3) for some in combinations(letters, count)]
    products = [tuple(prod(sizes[letter] for letter in some) for sizes in (first, second)) for some in chosen]
    assert len({*products}) == len(products)
    differences = [tuple(sizes[a] - sizes[b] for sizes in (first, second)) for a, b in combinations(letters, 2)]
    assert len({*differences}) == len(differences)


@NAMES
def test_every_size_and_option_of_a_domain_is_tried_with_each_of_its_values(name):
    exercise = EXERCISES[name]
    sizes, edges = read_domain(exercise.domain)
    titles = [case.title for case in exercise.known_cases]
    for option, values in sizes.items():
        tried = {case.sizes.get(option) for case in exercise.known_cases}
        assert {value for value in values if value != 1} <= tried | {v for v in values if isinstance(v, str)}, option
        assert len(option) == 1 or f"{option} = {values[-1]}" in titles
    assert all(f"{argument} = {value:g}" in titles for argument, values in edges.items() for value in values)
    assert titles[0] == "ordinary numbers" and len(titles) > 1


@pytest.mark.parametrize("name", [name for name in EXERCISES if "np.exp" in exercises.solution(name)])
def test_where_there_is_an_exponential_numbers_near_1000_are_tried(name):
    """Not in composites of exercises that were tried on them, with a gate, or a factor exp(s)."""
    others = "vit", "vit_backward", "worked_example_backward", "similarity_backward"
    assert name in others or any("1000" in case.title for case in EXERCISES[name].known_cases)


@NAMES
def test_cases_of_a_seed_fit_and_others_are_drawn_for_another(name):
    exercise = EXERCISES[name]
    drawn = [[case.title for case in exercise.cases(seed)] for seed in (1, 2, 1)]
    assert drawn[0] == drawn[2] and len({*drawn[0]}) == len(drawn[0])
    assert not any(len(word) == 1 for word in exercise.domain.split()) or drawn[0] != drawn[1]


def max_pool2d(x, kernel, stride):
    H, W = (x.shape[2] - kernel) // stride + 1, (x.shape[3] - kernel) // stride + 1
    y = np.zeros((*x.shape[:2], H, W))
    for u, v in np.ndindex(kernel, kernel):
        y = np.maximum(y, x[:, :, u : u + stride * H : stride, v : v + stride * W : stride])
    return y


def window_partition(x, window, shift):
    return EXERCISES["window_partition"].right(x, window, window // 2)


def group_norm(x, weight, bias, num_groups, eps):
    rows = x.reshape(len(x), num_groups, -1)
    mean = rows.mean(-1, keepdims=True)
    xhat = (rows - mean) / np.sqrt((rows * rows).mean(-1, keepdims=True) - mean * mean + eps)
    return xhat.reshape(x.shape) * weight[:, None, None] + bias[:, None, None]


def depthwise_conv2d_backward(dy, x, weight, padding):
    padded = np.pad(x, [(0, 0)] * 2 + [(padding, padding)] * 2)
    dx, dweight = EXERCISES["depthwise_conv2d_backward"].right(dy, padded, weight, 0)
    return dx[:, :, padding:-padding, padding:-padding], dweight


@pytest.mark.parametrize("function, said", [
    (max_pool2d, "the maximum starts from 0"),
    (window_partition, "an option is not used as it was given"),
    (group_norm, "wrong only with numbers near 10⁷ (a variance as E[x²] − E[x]²?)"),
    (depthwise_conv2d_backward, "wrong only with padding = 0 (an empty slice, or a division by 0?)"),
    (lambda *given: EXERCISES["layernorm"].right(*given).squeeze(), "wrong only with B = 1 (an axis of length 1?)"),
])  # fmt: skip
def test_what_is_wrong_at_an_edge_alone_is_named_for_every_seed(function, said):
    name = "layernorm" if function.__name__ == "<lambda>" else function.__name__
    for seed in range(10):
        report = exercises.check(name, function, seed=seed)
        assert not report and report.mistakes == (said,), report
        assert f"like this mistake: {said}." in report.answer.split("\n")[1]
