"""Whether the fields of a parsed config.json are of the kinds that they have to be, and agree with the weights."""

from math import isfinite
from numbers import Real

import numpy as np

from tinyvit.interop.strict_json import short

LARGEST_SIZE = 1 << 31  # no model has a side as long, and Python's own integers have no end
LARGEST_NUMBER = 1e300
KINDS = {
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "size": lambda value: KINDS["int"](value) and 0 < value < LARGEST_SIZE,
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool) and within(value),
    "numbers": lambda value: all(map(KINDS["number"], value if isinstance(value, (list, tuple)) else [value])),
    "shape": lambda value: isinstance(value, (list, tuple)) and len(value) == 3 and all(map(KINDS["size"], value)),
    "bool": lambda value: isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "strings": lambda value: isinstance(value, (list, tuple)) and all(map(KINDS["string"], value)),
    "object": lambda value: isinstance(value, dict),
    "side": lambda value: KINDS["size"](value) or (
        isinstance(value, (list, tuple)) and len(value) == 2 and all(map(KINDS["size"], value))
    ),
}  # fmt: skip
WORDS = {
    "int": "an int", "size": "a positive int", "number": "a number", "numbers": "numbers",
    "shape": "channels, height and width", "bool": "true or false", "string": "a string",
    "strings": "a list of strings", "object": "an object", "side": "a positive int or two",
}  # fmt: skip


def within(number):
    """Whether a number is finite, with some room to compute; an int that no float can hold is not."""
    return -LARGEST_NUMBER < number < LARGEST_NUMBER


def expect_fields(values, kinds, source):
    """Raise one ValueError that names all fields of parsed JSON that are of another kind than `kinds` says by name.

    A field that is missing or null is fine. A "side" is a size or a list of two, and "numbers" are one or
    a list.
    """
    wrong = [
        f"{name} {short(repr(values[name]))} (expected {WORDS[kind]})"
        for name, kind in kinds.items()
        if values.get(name) is not None and not KINDS[kind](values[name])
    ]
    if wrong:
        raise ValueError(f"{source} has {'; '.join(wrong)}")


def expect_agreement(said, found, source):
    """Raise one ValueError that names both values of all fields that `said` and `found` differ in.

    said    by name, what the configuration says; what it says nothing of is None
    found   the same, as the weights' shapes tell it
    """
    different = [
        f"{name} {short(repr(value))}, but the weights have {found[name]!r}"
        for name, value in said.items()
        if value is not None and not same(value, found[name])
    ]
    if different:
        raise ValueError(f"{source} contradicts the weights: {'; '.join(different)}")


def per_channel(values, channels, name, positive=False):
    """A number for each channel, as a tuple of floats; one number is for all of them.

    name      of the field and where it stands, for the message
    positive  whether they have to be above 0

    Raises ValueError, naming the field, for what is no number, for another number of them, and for those that are not
    finite.
    """
    numbers = list(np.ravel(np.asarray(values, object)))
    if len(numbers) == 1:
        numbers *= channels
    expected = None
    if not all(isinstance(number, Real) and not isinstance(number, bool) for number in numbers):
        expected = "numbers"
    elif len(numbers) != channels:
        expected = "one for each channel or one for all"
    elif not all(map(isfinite, numbers)):
        expected = "finite numbers"
    elif positive and min(numbers) <= 0:
        expected = "numbers above 0"
    if expected:
        raise ValueError(f"{name} is {short(repr(values))}; for images of {channels} channels expected {expected}")
    return tuple(map(float, numbers))


def normalisation(said, given, channels, source):
    """Mean and standard deviation of each channel: what is given, where it isn't None, and else what is said.

    said    (mean, std) as (field, value), which are looked at only where nothing is given
    given   (mean, std), each None where `said` holds
    source  the file that says it, for the message
    """
    found = []
    for name, (field, value), chosen in zip(("mean", "std"), said, given, strict=True):
        if chosen is not None:
            found.append(per_channel(chosen, channels, f"the {name} that was given", name == "std"))
            continue
        try:
            found.append(per_channel(value, channels, f"{field} in {source}", name == "std"))
        except ValueError as error:
            raise ValueError(f"{error}; --{name} (in Python {name}) takes its place") from error
    return found


def same(said, found):
    """Whether two values of a field are the same; a pair may be a list, or one number if both are equal."""
    if isinstance(found, tuple):
        return list(found) == (list(said) if isinstance(said, (list, tuple)) else [said] * len(found))
    return said == found
