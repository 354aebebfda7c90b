"""Fields of a config.json: their types, and whether they agree with the weights."""

import pytest
from hypothesis import example, given
from layouts import JSON

from tinyvit.interop import fields

KINDS = (
    int, bool, str, dict, fields.Size, fields.Side, fields.Sides, fields.Classes, fields.Number, fields.Numbers,
    tuple[str, ...], tuple[fields.Size, fields.Side, fields.Side],
)  # fmt: skip


def test_a_field_of_another_kind_is_named_with_what_was_expected():
    kinds = {"a": fields.Size, "b": bool, "c": fields.Sides, "d": fields.Number, "e": fields.Numbers, "f": str}
    fields.expect_fields({"a": 1, "b": None, "c": [1, 2], "d": 0.5, "e": [1, 2.0]}, kinds, "it")
    with pytest.raises(ValueError, match=r"it has a True \(expected an int .*\); b 1 \(expected True or False\)"):
        fields.expect_fields({"a": True, "b": 1}, kinds, "it")
    with pytest.raises(ValueError, match=r"c \[1\] \(expected an int from 1 .*; d nan \(expected a number"):
        fields.expect_fields({"c": [1], "d": float("nan"), "f": "x"}, kinds, "it")


ABSURD = [10**400, -1, 0, 10**9, 1e308, float("inf"), float("nan"), [10**9] * 1000, "9" * 10_000]


@pytest.mark.parametrize("value", ABSURD)
def test_absurd_numbers_are_refused_in_one_short_line(value):
    with pytest.raises(ValueError, match="^it has ") as error:
        fields.expect_fields({"x": value}, {"x": fields.Sides}, "it")
    assert "\n" not in str(error.value) and len(str(error.value)) < 300


@given(JSON)
@example(10**400)
@example(float("inf"))
def test_every_kind_accepts_a_value_or_says_what_it_expects(value):
    for kind in KINDS:
        if value is not None and not fields.is_of(value, kind):
            with pytest.raises(ValueError, match="expected "):
                fields.expect_fields({"x": value}, {"x": kind}, "it")
        else:
            fields.expect_fields({"x": value}, {"x": kind}, "it")


def test_all_fields_that_differ_are_named_with_both_values():
    found = {"width": 8, "patch": (4, 4), "bias": True}
    fields.expect_agreement({"width": 8, "patch": 4, "bias": None}, found, "it")
    fields.expect_agreement({"patch": [4, 4]}, found, "it")
    both = r"it contradicts the weights: width 6, but the weights have 8; patch \[4, 3\], but the weights have \(4, 4\)"
    with pytest.raises(ValueError, match=both):
        fields.expect_agreement({"width": 6, "patch": [4, 3], "bias": True}, found, "it")
