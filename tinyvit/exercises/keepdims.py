"""Finds the sums that lack `keepdims=True`, by calling a learner's function again with the axes kept.

The arrays that the function gets are of a class whose sums, means and maxima can keep their axes. Each set of lines is
tried, small ones first: a set with which the function becomes right is what was missing.
"""

import linecache
import re
import sys
import time
from itertools import combinations

import numpy as np

from tinyvit.exercises.calling import call, is_learners

PATIENCE = 1.0  # seconds for all trials
LINES = 10  # with sums in them; a function with more is not tried


class Trial:
    """Which lines keep the axes (None: all), and what was seen: {line: (text, shape before, shape after)}."""

    def __init__(self, lines):
        self.lines, self.seen = lines, {}


def class_of_arrays(trial):
    """A class of arrays whose sums keep their axes where the trial says so."""
    names = "sum", "mean", "var", "std", "max", "min", "prod"
    return type("Kept", (np.ndarray,), {name: reduction(name, trial) for name in names})


def reduction(name, trial):
    plain = getattr(np.ndarray, name)

    def method(self, axis=None, *others, **options):
        if axis is None or options.get("keepdims", False) is True:
            return plain(self, axis, *others, **options)
        frame = sys._getframe(1)
        while frame is not None and not is_learners(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is None:
            return plain(self, axis, *others, **options)
        line = frame.f_code.co_filename, frame.f_lineno, name, axis
        if trial.lines is None or line in trial.lines:
            options["keepdims"] = True
        result = plain(self, axis, *others, **options)
        text = linecache.getline(*line[:2], frame.f_globals).strip()
        before, dropped = self.shape, np.atleast_1d(axis) % max(1, self.ndim)
        after = tuple(size for place, size in enumerate(before) if place not in dropped)
        trial.seen[line] = text, before, after
        return result

    return method


def viewed(value, kept):
    if isinstance(value, dict):
        return {name: viewed(array, kept) for name, array in value.items()}
    return value.view(kept) if isinstance(value, np.ndarray) and value.ndim else value


def missing_keepdims(function, draw, is_right, time_limit):
    """[(name of the sum, axis, line's number, its text, shape before, shape after)] with which it is right; or [].

    draw       gives the arguments, new ones at each call
    is_right   whether a returned value is right
    """
    until = time.monotonic() + PATIENCE
    seen = {}

    def right_with(lines):
        trial = Trial(lines)
        kept = class_of_arrays(trial)
        ended = call(function, [viewed(value, kept) for value in draw()], min(time_limit, PATIENCE))
        seen.update(trial.seen)
        return ended.exception is None and not ended.out_of_time and is_right(ended.value)

    right_with(frozenset())
    right_with(None)
    right_with(frozenset(line for line in seen if isinstance(line[3], int)))
    lines = sorted(seen, key=lambda line: (line[0], line[1]))
    if not 0 < len(lines) <= LINES:
        return []
    for count in range(1, len(lines) + 1):
        for chosen in combinations(lines, count):
            if time.monotonic() > until:
                return []
            if right_with(frozenset(chosen)):
                return [(line[2], line[3], line[1], *seen[line]) for line in chosen]
    return []


def by_shapes(error):
    """The (name, hint) for an exception whose two shapes differ by one axis; None for any other.

    For functions whose arrays lose the class on the way, as in einsum.
    """
    shapes = [tuple(map(int, re.findall(r"\d+", shape))) for shape in re.findall(r"\(([\d,]+)\)", str(error))]
    if "broadcast" not in str(error) or len(shapes) != 2:
        return None
    before, after = sorted(shapes, key=len, reverse=True)
    for axis in range(len(before)):
        if before[:axis] + before[axis + 1 :] == after:
            return NAME, in_words("A sum, mean or maximum", axis, before, after)
    return None


NAME = "keepdims=True is missing"


def in_words(what, axis, before, after):
    longer = tuple(1 if place in np.atleast_1d(axis) % len(before) else size for place, size in enumerate(before))
    return (
        f"{what} makes {after} of {before}. NumPy lines axes up from the right, so that the "
        f"{after[-1] if after else 'number'} of {after} meets the last axis of {before}, and not the axis that it "
        f"belongs to. With keepdims=True it is {longer}, and is broadcast along the axis that was reduced."
    )


def said(found):
    """The (name, hint) of the mistake."""
    wheres = list(dict.fromkeys(f"line {number}{text and f' ({text})'}" for _, _, number, text, _, _ in found))
    which, axis, _, _, before, after = found[0]
    hint = in_words(f"{which}({axis}) in {wheres[0]}", axis, before, after)
    return NAME, hint + (f" So do those in {', '.join(wheres[1:])}." if len(wheres) > 1 else "")
