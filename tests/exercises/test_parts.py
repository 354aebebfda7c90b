"""The mistakes of a part are named in every composite that it is put into."""

import pytest

from tinyvit import exercises
from tinyvit.exercises.catalogue import EXERCISES
from tinyvit.exercises.parts import mistakes_of_parts, parts_of

BLOCK, HEADS = "block_backward", "multi_head_attention_backward"
TRIED = [
    (BLOCK, "the mean's term is missing", "norm1"),
    (BLOCK, "the variance's term is missing", "layernorm_backward"),
    (BLOCK, "σ² where the variance's term has σ³", "norm2"),
    (BLOCK, "weight is forgotten in dx", "norm2"),
    (BLOCK, "x in place of x̂ in dweight", "norm1"),
    (BLOCK, "one half of the product rule", "gelu_backward"),
    (BLOCK, "the scale is applied twice", "attention_backward"),
    (BLOCK, "softmax over the heads", "attention and attention_backward"),
    (BLOCK, "wrong transpose in dx", "mlp.fc2"),
    (BLOCK, "the joined heads' gradient is joined by a reshape", HEADS),
    (BLOCK, "qkv_bias is forgotten where the forward is computed again", HEADS),
    (BLOCK, "heads are split and joined by a reshape without transpose", "split and join"),
    (HEADS, "the scale is applied twice", "attention_backward"),
    (HEADS, "the sum is not weighted by the probabilities", "softmax_backward"),
    (HEADS, "softmax over the heads", "attention and attention_backward"),
    ("mlp_backward", "the √2 in erf is forgotten", "gelu_backward"),
    ("attention_backward", "not multiplied by the probabilities", "softmax_backward"),
    ("block", "the sample variance", "norm2"),
    ("vit", "softmax over the queries", "attention"),
    ("vit_backward", "one half of the product rule", "gelu_backward"),
]


@pytest.mark.parametrize("name, mistake, where", TRIED, ids=lambda value: value)
def test_a_mistake_in_a_part_is_named(name, mistake, where):
    made = [one for one in mistakes_of_parts(name) if one.name.startswith(mistake) and where in one.name]
    exercise = EXERCISES[name]
    report = exercises.check(name, made[0].formula)
    assert not report and len(report.mistakes) == 1, report
    named = by_name(exercise, report.mistakes[0])
    assert named.name == made[0].name or same(exercise, named, made[0]), report


def by_name(exercise, name):
    return next(one for one in [*exercise.mistakes, *mistakes_of_parts(exercise.name)] if one.name == name)


def same(exercise, one, other):
    """Whether two mistakes give the same numbers, so that either name is right."""
    equal = exercise.equal_cases[0]
    outputs = [exercise.evaluate(mistake.formula, exercise.draw(equal)) for mistake in (one, other)]
    names = outputs[0].keys() & outputs[1].keys()
    return bool(names) and all(abs(outputs[0][name] - outputs[1][name]).max() < 1e-9 for name in names)


def test_a_block_is_made_of_layer_norms_an_attention_and_an_mlp():
    assert {"layernorm_backward", "softmax_backward", "gelu_backward", "linear_backward"} <= set(parts_of(BLOCK))
    assert parts_of("layernorm_backward") == [] and mistakes_of_parts("gelu") == []


def test_every_name_of_a_mistake_in_a_part_is_used_once():
    for name in EXERCISES:
        names = [mistake.name for mistake in mistakes_of_parts(name)]
        repeated = {one for one in names if names.count(one) > 1}
        own = [mistake.name for part in parts_of(name) if part in EXERCISES for mistake in EXERCISES[part].mistakes]
        assert all(own.count(one.split(" (")[0]) > 1 for one in repeated), repeated
