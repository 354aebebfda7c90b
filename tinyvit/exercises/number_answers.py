"""Checks a number that a learner computed on paper."""

import numpy as np


def check_number(name, given, expected, hint, tolerance=0.0):
    """Print what a teacher would say to an answer that is a number, or several; return whether it is right.

    name        of the learner's variable, shown in the reply
    given       the learner's value, of any type; None means that it is not filled in yet
    expected    the right number, or an array of them
    hint        a sentence that helps if the number is wrong
    tolerance   the largest accepted error
    """
    right, answer = read_answer(given, np.asarray(expected, float), hint, tolerance)
    print(f"{name}: {answer}")
    return right


def read_answer(given, expected, hint, tolerance):
    """(whether the answer is right, the text of the reply)."""
    wanted = "one number" if expected.ndim == 0 else f"{expected.size} numbers in a tuple"
    if given is None:
        return False, f"put {wanted} in place of None."
    try:
        found = np.asarray(given)
        found = None if np.iscomplexobj(found) else found.astype(float)
    except Exception:  # a learner's object may raise anything
        found = None
    if found is None or isinstance(given, (str, bytes, bool)):
        return False, f"expected {wanted}, got {type(given).__name__}."
    if found.size != expected.size:
        return False, f"expected {wanted}, got {'one' if found.ndim == 0 else found.size}."
    if not (np.abs(found.reshape(expected.shape) - expected) <= tolerance).all():
        return False, f"not right yet. {hint}"
    return True, "right."
