"""Fields of a config.json: of the annotated types, or refused by their names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from layouts import JSON

from tinyvit.interop import fields

KINDS = (
    int, bool, str, dict, fields.Size, fields.Side, fields.Sides, fields.Classes, fields.Number, tuple[str, ...],
    tuple[fields.Size, fields.Side, fields.Side],
)  # fmt: skip


def test_a_field_of_another_kind_is_named_with_what_was_expected():
    kinds = {"a": fields.Size, "b": bool, "c": fields.Sides, "d": fields.Number, "f": str}
    found = fields.check_fields({"a": 1, "b": None, "c": [1, 2], "d": 2, "x": 0}, kinds, "it")
    assert found == {"a": 1, "c": (1, 2), "d": 2.0}
    with pytest.raises(ValueError, match=r"it has a True \(expected an int .*\); b 1 \(expected True or False\)"):
        fields.check_fields({"a": True, "b": 1}, kinds, "it")
    with pytest.raises(ValueError, match=r"c \[1\] \(expected an int from 1 .*; d nan \(expected a number"):
        fields.check_fields({"c": [1], "d": float("nan"), "f": "x"}, kinds, "it")
    with pytest.raises(ValueError, match="expected it to hold an object, got list"):
        fields.check_fields([], kinds, "it")


@given(JSON | st.sampled_from([10**400, 1e308, float("inf"), [10**9] * 1000, "9" * 10_000]))
def test_every_kind_accepts_a_value_or_says_in_one_short_line_what_it_expects(value):
    for kind in KINDS:
        try:
            fields.check_fields({"x": value}, {"x": kind}, "it")
        except ValueError as error:
            assert "it has x " in str(error) and "(expected " in str(error)
            assert "\n" not in str(error) and len(str(error)) < 300
