from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyvit.validation import Count, NotNegative, Positive, PositiveInt, PositiveShare, Range, Rate, Share, validate


@dataclass(frozen=True)
class Everything:
    side: PositiveInt = 1
    few: Annotated[int, Range(1, 1000)] = 1
    offset: Count = 0
    lr: Positive = 1.0
    decay: NotNegative = 0.0
    share: Share = 0.5
    part: PositiveShare = 1.0
    rate: Rate = 0.0
    plain: float = -1.0
    kind: Literal["a", "b"] = "a"
    maybe: PositiveInt | None = None
    either: Literal["a"] | None = None
    flag: bool = False
    name: str = "x"
    betas: tuple[Rate, Rate] = (0.9, 0.99)
    sides: tuple[PositiveInt, ...] = ()
    anything: Any = None
    raw: bytes = b""

    def __post_init__(self):
        validate(self)


@given(value=st.sampled_from([3, np.int64(3), np.uint8(3)]))
def test_numbers_and_tuples_get_the_type_of_their_annotation(value):
    config = Everything(side=value, lr=value, maybe=value, sides=[value, value], betas=[0, np.float32(0.5)])
    assert config == Everything(side=3, lr=3.0, maybe=3, sides=(3, 3), betas=(0.0, 0.5))
    kinds = [type(x) for x in (config.side, config.lr, config.maybe, config.sides, config.sides[0], *config.betas)]
    assert kinds == [int, float, int, tuple, int, float, float]


@pytest.mark.parametrize(("field", "value", "expected"), [
    ("side", 0, "a positive int"),
    ("side", 1.0, "a positive int"),
    ("side", True, "a positive int"),
    ("few", 1001, "an int from 1 to 1,000"),
    ("offset", -1, "an int of at least 0"),
    ("lr", 0, "a positive finite number"),
    ("lr", float("nan"), "a positive finite number"),
    ("decay", float("inf"), "a finite number of at least 0"),
    ("share", 1.1, "a number from 0 to 1"),
    ("part", 0, "a number above 0 and at most 1"),
    ("rate", 1, "a number of at least 0 and below 1"),
    ("rate", 1j, "a number of at least 0 and below 1"),
    ("plain", "1", "a number"),
    ("kind", ["a"], "one of a, b"),
    ("maybe", 0, "a positive int or None"),
    ("either", "b", "one of a or None"),
    ("flag", 1, "True or False"),
    ("name", "", "text"),
    ("betas", (0.9,), r"\(a number of at least 0 and below 1, a number of at least 0 and below 1\)"),
    ("sides", (4, 0), r"\(a positive int, …\)"),
    ("raw", {}, "a bytes"),
])  # fmt: skip
def test_a_value_of_another_kind_or_out_of_range_is_refused_with_what_was_expected(field, value, expected):
    with pytest.raises(ValueError, match=rf"^{field} must be {expected}, got "):
        Everything(**{field: value})


def test_an_error_names_the_option_of_the_command_line_where_it_is_one():
    @dataclass(frozen=True)
    class Optim:
        clip_norm: Positive = 1.0

    with pytest.raises(ValueError, match=r"^optim\.clip-norm must be a positive finite number, got -1$"):
        validate(Optim(-1), "optim.")
