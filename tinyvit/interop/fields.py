"""Checks the fields of a foreign config.json: their types and ranges, and whether they agree with the weights."""

from math import isfinite
from numbers import Real
from typing import Annotated

import numpy as np

from tinyvit.text import short
from tinyvit.validation import Mismatch, Within, converted, expected

LARGEST_SIDE = 65_535  # pixels, as in a JPEG
MOST_CLASSES = 1_000_000  # ImageNet-21k has 21,843
Size = Annotated[int, Within(1, 1 << 31)]
Side = Annotated[int, Within(1, LARGEST_SIDE)]
Sides = Side | tuple[Side, Side]
Classes = Annotated[int, Within(0, MOST_CLASSES)]
Number = Annotated[float, Within(-1e300, 1e300)]  # far from overflow
Numbers = Number | tuple[Number, ...]


def expect_fields(values, kinds, source):
    """Raise one ValueError that names all fields of parsed JSON that are not of the annotation in `kinds`.

    Missing and null fields are allowed.
    """
    wrong = [
        f"{name} {short(repr(values[name]))} (expected {expected(kind)})"
        for name, kind in kinds.items()
        if values.get(name) is not None and not is_of(values[name], kind)
    ]
    if wrong:
        raise ValueError(f"{source} has {'; '.join(wrong)}")


def is_of(value, kind):
    """Whether a value of parsed JSON is of an annotation."""
    try:
        converted(value, kind)
    except (Mismatch, OverflowError):  # an int that no float can hold
        return False
    return True


def expect_agreement(said, found, source):
    """Raise one ValueError with both values of every field in which `said` and `found` differ.

    said    the configuration's values by name; None where it has none
    found   the values that the weights' shapes imply
    """
    different = [
        f"{name} {short(repr(value))}, but the weights have {found[name]!r}"
        for name, value in said.items()
        if value is not None and not same(value, found[name])
    ]
    if different:
        raise ValueError(f"{source} contradicts the weights: {'; '.join(different)}")


def per_channel(values, channels, name, positive=False):
    """A tuple of floats, one for each channel; a single number holds for all of them.

    name      of the field and its file, for the message
    positive  whether they must be above 0

    Raises ValueError, naming the field, for anything but finite numbers, and for another number of them.
    """
    numbers = list(np.ravel(np.asarray(values, object)))
    if len(numbers) == 1:
        numbers *= channels
    wanted = None
    if not all(isinstance(number, Real) and not isinstance(number, bool) for number in numbers):
        wanted = "numbers"
    elif len(numbers) != channels:
        wanted = "one for each channel or one for all"
    elif not all(map(isfinite, numbers)):
        wanted = "finite numbers"
    elif positive and min(numbers) <= 0:
        wanted = "numbers above 0"
    if wanted:
        raise ValueError(f"{name} is {short(repr(values))}; for images of {channels} channels expected {wanted}")
    return tuple(map(float, numbers))


def normalisation(said, given, channels, source):
    """Mean and standard deviation of each channel: those given, and where one is None the source's.

    said    (mean, std) of the source, as (field, value); ignored where one is given
    given   (mean, std)
    source  the file, for the message
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
