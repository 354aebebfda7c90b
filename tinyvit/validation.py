"""Checks the fields of a configuration against their annotations.

    @dataclass(frozen=True)
    class Config:
        width: PositiveInt = 64
        drop: Rate = 0.0
        kind: Literal["a", "b"] = "a"

        def __post_init__(self):
            validate(self)

Imports nothing of the package, so that every layer can use it.
"""

from dataclasses import dataclass, fields
from functools import cache
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

INFINITY = float("inf")


@dataclass(frozen=True)
class Range:
    """An annotation of a number's range: from `least` to `most`, without these ends where it says so.

    words   the range for an error, where it isn't "from … to …"
    """

    least: float = -INFINITY
    most: float = INFINITY
    above: bool = False
    below: bool = False
    words: str = ""

    def holds(self, value):
        lower = self.least < value if self.above else self.least <= value
        return lower and (value < self.most if self.below else value <= self.most) and abs(value) < INFINITY


PositiveInt = Annotated[int, Range(1, words="a positive int")]
Width = Annotated[int, Range(1, 65_536)]  # of a model's layers: far above any that was trained
Sides = PositiveInt | tuple[PositiveInt, PositiveInt]  # of a square, or (height, width)
Count = Annotated[int, Range(0, words="an int of at least 0")]
Positive = Annotated[float, Range(0, above=True, words="a positive finite number")]
NotNegative = Annotated[float, Range(0, words="a finite number of at least 0")]
Share = Annotated[float, Range(0, 1)]
PositiveShare = Annotated[float, Range(0, 1, above=True, words="a number above 0 and at most 1")]
Finite = Annotated[float, Range(words="a finite number")]
Rate = Annotated[float, Range(0, 1, below=True, words="a number of at least 0 and below 1")]


def validate(config, option=None):
    """Check every field of a frozen dataclass, and give numbers and tuples the type of their annotation.

    option   what the fields' names on the command line begin with, such as "optim." or "": errors then name options,
             `optim.clip-norm`, and by default the fields themselves

    Raises ValueError that says which field, what was expected and what came.
    """
    hints = annotations(type(config))
    for field in fields(config):
        value, hint = getattr(config, field.name), hints[field.name]
        try:
            object.__setattr__(config, field.name, convert(value, hint))
        except Mismatch:
            name = field.name if option is None else option + field.name.replace("_", "-")
            raise ValueError(f"{name} must be {expected(hint)}, got {value!r}") from None


def require(holds, expected, got):
    """Raise ValueError(expected, got …) unless it holds: for what no annotation of a single field can say."""
    if not holds:
        raise ValueError(f"{expected}, got {got!r}")


@cache
def annotations(cls):
    return get_type_hints(cls, include_extras=True)


class Mismatch(Exception):
    """A value that isn't of an annotated type."""


def convert(value, hint):
    """The value in the type of an annotation; Mismatch if it is of another kind, or out of range."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        value = convert(value, parts[0])
        if parts[1].holds(value):
            return value
    elif origin is Literal:
        if isinstance(value, str | int | NoneType) and value in parts:
            return value
    elif origin in (UnionType, Union):
        for part in parts:
            try:
                return convert(value, part)
            except Mismatch:
                continue
    elif origin is tuple and isinstance(value, (tuple, list)):
        kinds = [parts[0]] * len(value) if parts[-1] is Ellipsis else parts
        if len(kinds) == len(value):
            return tuple(map(convert, value, kinds))
    elif hint is Any:
        return value
    elif hint in (int, float):
        if isinstance(value, Integral if hint is int else Real) and not isinstance(value, bool):
            return hint(value)
    elif isinstance(hint, type) and isinstance(value, hint) and value != "":
        return value
    raise Mismatch


def expected(hint):
    """An annotation in words."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        kind, within = parts
        return within.words or f"{'an int' if kind is int else 'a number'} from {within.least:,} to {within.most:,}"
    if origin is Literal:
        return f"one of {', '.join(map(str, parts))}"
    if origin in (UnionType, Union):
        return " or ".join(map(expected, parts))
    if origin is tuple:
        return f"({', '.join('…' if part is Ellipsis else expected(part) for part in parts)})"
    plain = {int: "an int", float: "a number", bool: "True or False", str: "text", NoneType: "None"}
    return plain.get(hint, f"a {getattr(hint, '__name__', hint)}")
