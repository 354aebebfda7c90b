"""Whatever a learner puts in place of a number, the answer is one line and no traceback."""

import numpy as np
import pytest

from tinyvit import exercises

HINT = "Count the class token, too."


class Unreadable:
    def __array__(self, *arguments, **options):
        raise RuntimeError("no")


@pytest.mark.parametrize(
    "given, expected, said",
    [
        (17, 17, "right."),
        (np.int64(17), 17, "right."),
        (None, 17, "put one number in place of None."),
        (16, 17, f"not right yet. {HINT}"),
        (float("nan"), 17, f"not right yet. {HINT}"),
        (10**400, 17, "expected one number, got int."),
        ("17", 17, "expected one number, got str."),
        (True, 1, "expected one number, got bool."),
        ((17, 18), 17, "expected one number, got 2."),
        (17j, 17, "expected one number, got complex."),
        (Unreadable(), 17, "expected one number, got Unreadable."),
        (None, (1, 2), "put 2 numbers in a tuple in place of None."),
        ((1, 2), (1, 2), "right."),
        ((1, 3), (1, 2), f"not right yet. {HINT}"),
        (1, (1, 2), "expected 2 numbers in a tuple, got one."),
        ((1, None), (1, 2), f"not right yet. {HINT}"),
        (np.array([[1, 2]]), (1, 2), "right."),
        (np.array([1 + 0j, 2]), (1, 2), "expected 2 numbers in a tuple, got ndarray."),
    ],
)
def test_any_answer_gets_one_line(given, expected, said, capsys):
    right = exercises.check_number("tokens", given, expected, HINT)
    assert capsys.readouterr().out == f"tokens: {said}\n"
    assert right == (said == "right.")


def test_a_number_may_be_off_by_its_tolerance(capsys):
    assert exercises.check_number("loss", 0.1369, 0.13688, HINT, 1e-4)
    assert not exercises.check_number("loss", 0.1371, 0.13688, HINT, 1e-4)
    assert not exercises.check_number("loss", 0.1369, 0.13688, HINT)
    assert not exercises.check_number("gradient", (0.1, 0.2), (0.1, 0.3), HINT, 1e-4)
