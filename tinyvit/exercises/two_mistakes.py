"""Two mistakes in one output.

Their edits of the solution are made together; or one is a general mistake, applied to the other's result.
"""

import contextlib
from itertools import combinations

import numpy as np

from tinyvit.exercises.exercise import Mistake, edit_solution, edit_sources
from tinyvit.exercises.general_mistakes import FORGOTTEN_DY, find_factor, find_rearrangement, forget_dy, takes_dy


def two_mistakes(exercise, case, arguments, got, wrong, on_purpose):
    """The results of pairs of mistakes: ((name, hint) of both, outputs by name), lazily.

    wrong        names of the outputs that are wrong
    on_purpose   (mistake, its outputs) for all mistakes of the exercise
    """
    wrong = [name for name in wrong if np.isfinite(got[name]).all()]
    without_dy = Mistake(*FORGOTTEN_DY, None, edits=((exercise.name, "dy = np.ones_like(dy)", None),))
    dys = [(without_dy, exercise.evaluate(exercise.right, forget_dy(*arguments())))] if takes_dy(exercise) else []
    yield from edited_pairs(exercise, arguments, on_purpose + dys)
    yield from general_pairs(case, got, on_purpose, wrong)


def edited_pairs(exercise, arguments, on_purpose):
    """The solution with the edits of both, as far as the other's text stands outside of what the first has written:
    inside it, the second edit would not be what its words say."""
    for (one, first), (other, second) in combinations(on_purpose, 2):
        if one.edits and other.edits and one.explanation != other.explanation:
            with contextlib.suppress(Exception):  # two edits together may make no sense
                blanked = tuple((part, old, new and "\0") for part, old, new in one.edits)
                edit_sources(exercise.right, blanked + other.edits)
                formula = edit_solution(exercise.right, one.edits + other.edits)
                outputs = exercise.evaluate(formula, arguments())
                changed = first.keys() | second
                yield (one.explanation, other.explanation), {name: outputs[name] for name in outputs if name in changed}


def general_pairs(case, got, on_purpose, wrong):
    """One of the two is a general mistake, applied to the result of the other."""
    for mistake, outputs in on_purpose:
        for name in wrong:
            if name in outputs:
                in_any = find_factor(name, case, got[name], outputs[name])
                in_any = in_any or find_rearrangement(name, case, got[name], outputs[name])
                if in_any:
                    yield (mistake.explanation, in_any), {name: got[name]}
