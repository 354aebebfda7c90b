"""Two mistakes in one output.

Their edits of the solution are made together; or one is a general mistake, applied to the other's result.
"""

import contextlib
from itertools import combinations

import numpy as np

from tinyvit.exercises.exercise import Mistake, edited, edited_texts
from tinyvit.exercises.general_mistakes import DY_FORGOTTEN, differs_by, dy_forgotten, rearranged, takes_dy


def two_mistakes(exercise, case, arguments, got, wrong, on_purpose):
    """The results of pairs of mistakes: ((name, hint) of both, outputs by name), lazily.

    wrong        names of the outputs that are wrong
    on_purpose   (mistake, its outputs) for all mistakes of the exercise
    """
    wrong = [name for name in wrong if np.isfinite(got[name]).all()]
    without_dy = Mistake(*DY_FORGOTTEN, None, edits=((exercise.name, "dy = np.ones_like(dy)", None),))
    dys = [(without_dy, exercise.made_by(exercise.right, dy_forgotten(*arguments())))] if takes_dy(exercise) else []
    yield from both_edited(exercise, arguments, on_purpose + dys)
    yield from as_in_any(case, got, on_purpose, wrong)


def both_edited(exercise, arguments, on_purpose):
    """The solution with the edits of both, as far as the other's text stands outside of what the first has written:
    inside it, the second edit would not be what its words say."""
    for (one, first), (other, second) in combinations(on_purpose, 2):
        if one.edits and other.edits and one.said != other.said:
            with contextlib.suppress(Exception):  # two edits together may make no sense
                blanked = tuple((part, old, new and "\0") for part, old, new in one.edits)
                edited_texts(exercise.right, blanked + other.edits)
                formula = edited(exercise.right, one.edits + other.edits)
                outputs = exercise.made_by(formula, arguments())
                changed = first.keys() | second
                yield (one.said, other.said), {name: outputs[name] for name in outputs if name in changed}


def as_in_any(case, got, on_purpose, wrong):
    """One of the two is a general mistake, applied to the result of the other."""
    for mistake, outputs in on_purpose:
        for name in wrong:
            if name in outputs:
                in_any = differs_by(name, case, got[name], outputs[name])
                in_any = in_any or rearranged(name, case, got[name], outputs[name])
                if in_any:
                    yield (mistake.said, in_any), {name: got[name]}
