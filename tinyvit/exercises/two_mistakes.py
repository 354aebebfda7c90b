"""Two mistakes in one output.

Their edits of the solution are made together; or one is a general mistake, applied to the other's result.
"""

import contextlib
from itertools import combinations

import numpy as np

from tinyvit.exercises.exercise import edit_solution, edit_sources
from tinyvit.exercises.general_mistakes import find_factor, find_rearrangement, forgotten_dy


def two_mistakes(attempt, on_purpose):
    """The results of pairs of mistakes: ((name, hint) of both, outputs by name), lazily.

    on_purpose   (mistake, its outputs) for all mistakes of the exercise
    """
    dys = [(mistake, attempt.evaluate(mistake.formula)) for mistake in forgotten_dy(attempt.exercise)]
    yield from edited_pairs(attempt, on_purpose + dys)
    yield from general_pairs(attempt, on_purpose)


def edited_pairs(attempt, on_purpose):
    """The solution with the edits of both, as far as the other's text stands outside of what the first has written:
    inside it, the second edit would not be what its words say."""
    solution = attempt.exercise.right
    for (one, first), (other, second) in combinations(on_purpose, 2):
        if one.edits and other.edits and one.explanation != other.explanation:
            with contextlib.suppress(Exception):  # two edits together may make no sense
                blanked = tuple((part, old, new and "\0") for part, old, new in one.edits)
                edit_sources(solution, blanked + other.edits)
                outputs = attempt.evaluate(edit_solution(solution, one.edits + other.edits))
                changed = first.keys() | second
                yield (one.explanation, other.explanation), {name: outputs[name] for name in outputs if name in changed}


def general_pairs(attempt, on_purpose):
    """One of the two is a general mistake, applied to the result of the other."""
    names = [name for name in attempt.wrong if np.isfinite(attempt.got[name]).all()]
    for mistake, outputs in on_purpose:
        for name in [name for name in names if name in outputs]:
            both = attempt.case, attempt.got[name], outputs[name]
            in_any = find_factor(name, *both) or find_rearrangement(name, *both)
            if in_any:
                yield (mistake.explanation, in_any), {name: attempt.got[name]}
