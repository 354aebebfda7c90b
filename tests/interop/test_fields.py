"""Fields of a config.json: of which kind, and whether they agree with the weights."""

import pytest
from hypothesis import example, given
from layouts import JSON

from tinyvit.interop import fields


def test_a_field_of_another_kind_is_named_with_what_was_expected():
    kinds = {"a": "int", "b": "bool", "c": "side", "d": "number", "e": "numbers", "f": "string"}
    fields.expect_fields({"a": 1, "b": None, "c": [1, 2], "d": 0.5, "e": [1, 2.0]}, kinds, "it")
    with pytest.raises(ValueError, match=r"it has a True \(expected an int\); b 1 \(expected true or false\)"):
        fields.expect_fields({"a": True, "b": 1}, kinds, "it")
    with pytest.raises(ValueError, match=r"c \[1\] \(expected a positive int or two\); d nan \(expected a number\)"):
        fields.expect_fields({"c": [1], "d": float("nan"), "f": "x"}, kinds, "it")


@given(JSON)
@example(10**400)
@example(float("inf"))
def test_every_kind_says_of_any_value_whether_it_is_one(value):
    for kind in fields.KINDS:
        if value is not None and not fields.KINDS[kind](value):
            with pytest.raises(ValueError, match="expected "):
                fields.expect_fields({"x": value}, {"x": kind}, "it")
        else:
            fields.expect_fields({"x": value}, {"x": kind}, "it")
    assert fields.KINDS.keys() == fields.WORDS.keys()


def test_all_fields_that_differ_are_named_with_both_values():
    found = {"width": 8, "patch": (4, 4), "bias": True}
    fields.expect_agreement({"width": 8, "patch": 4, "bias": None}, found, "it")
    fields.expect_agreement({"patch": [4, 4]}, found, "it")
    both = r"it contradicts the weights: width 6, but the weights have 8; patch \[4, 3\], but the weights have \(4, 4\)"
    with pytest.raises(ValueError, match=both):
        fields.expect_agreement({"width": 6, "patch": [4, 3], "bias": True}, found, "it")
