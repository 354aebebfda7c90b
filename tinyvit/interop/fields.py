"""Checks values of unknown origin: the fields of a config.json, and the mean and standard deviation of channels."""

from typing import Annotated

import numpy as np

from tinyvit.text import shorten
from tinyvit.validation import Finite, Mismatch, Positive, Range, convert, expected

MAX_SIDE_PIXELS = 65_535  # pixels, as in a JPEG
MAX_CLASSES = 1_000_000  # ImageNet-21k has 21,843
Size = Annotated[int, Range(1, 1 << 31)]
Side = Annotated[int, Range(1, MAX_SIDE_PIXELS)]
Sides = Side | tuple[Side, Side]
Classes = Annotated[int, Range(0, MAX_CLASSES)]
Number = Annotated[float, Range(-1e300, 1e300)]  # far from overflow


def check_fields(values, kinds, source):
    """The fields of parsed JSON that `kinds` annotates, in the types of their annotations, less those that are null.

    Raises ValueError, naming `source`, for anything but an object, and one that names all fields of another kind.
    """
    if not isinstance(values, dict):
        raise ValueError(f"expected {source} to hold an object, got {type(values).__name__}")
    found, wrong = {}, []
    for name, kind in kinds.items():
        try:
            if values.get(name) is not None:
                found[name] = convert(values[name], kind)
        except (Mismatch, OverflowError):  # an int that no float can hold
            wrong.append(f"{name} {shorten(repr(values[name]))} (expected {expected(kind)})")
    if wrong:
        raise ValueError(f"{source} has {'; '.join(wrong)}")
    return found


def normalisation(said, given, channels, source):
    """Mean and standard deviation of each channel: those given, and where one is None the source's.

    said    (mean, std) of the source, as (field, value); ignored where one is given
    given   (mean, std); one number holds for all channels
    source  the file, for the message

    Raises ValueError for anything but finite numbers, those of the deviation above 0, and another number of them.
    """
    found = []
    kinds = ("mean", Finite, "a finite number"), ("std", Positive, "a positive finite number")
    for (name, kind, wanted), (field, value), chosen in zip(kinds, said, given, strict=True):
        where, advice = f"the {name} that was given", ""
        if chosen is None:
            where, advice = f"{field} in {source}", f"; --{name} (in Python {name}) takes its place"
            chosen = value
        numbers = list(np.ravel(np.asarray(chosen, object)))
        try:
            found.append(convert(numbers * (channels if len(numbers) == 1 else 1), tuple[(kind,) * channels]))
        except (Mismatch, OverflowError) as error:
            wanted = f"{wanted} for each of {channels} channels, or one for all"
            raise ValueError(f"{where} is {shorten(repr(chosen))}; expected {wanted}{advice}") from error
    return found
