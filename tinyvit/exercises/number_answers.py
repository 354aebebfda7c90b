"""Checks a number that a learner computed on paper."""

import numpy as np


def check_number(name, given, expected, hint, tolerance=0.0):
    """Print what a teacher would say to an answer that is a number, or several; return whether it is right.

    name        under which the answer speaks of it: that of the learner's variable
    given       what the learner put into it, whatever that is; None says that it is still to be found
    expected    the right number, or an array of them
    hint        a sentence for whoever has another one
    tolerance   how far off it may be
    """
    right, answer = read(given, np.asarray(expected, float), hint, tolerance)
    print(f"{name}: {answer}")
    return right


def read(given, expected, hint, tolerance):
    """(whether it is right, what is to be said)."""
    wanted = "one number" if expected.ndim == 0 else f"{expected.size} numbers in a tuple"
    if given is None:
        return False, f"put {wanted} in place of None."
    try:
        found = np.asarray(given)
        found = None if np.iscomplexobj(found) else found.astype(float)
    except Exception:  # whatever a learner's object does when it is to be a number
        found = None
    if found is None or isinstance(given, (str, bytes, bool)):
        return False, f"expected {wanted}, got {type(given).__name__}."
    if found.size != expected.size:
        return False, f"expected {wanted}, got {'one' if found.ndim == 0 else found.size}."
    if not (np.abs(found.reshape(expected.shape) - expected) <= tolerance).all():
        return False, f"not right yet. {hint}"
    return True, "right."
