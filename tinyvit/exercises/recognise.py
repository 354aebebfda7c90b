"""Recognises the mistake behind a wrong answer.

A mistake is recognised by its numbers: for the same random arguments, the wrong formula gives what the learner's
function gave, and on a second case as well, of other sizes, so that none is taken for another one by chance.
The learner's source isn't read. First come the exercise's own mistakes, then its parts', those that are seen in an
output alone, the kinds of mistakes, and pairs.
"""

import contextlib
from itertools import combinations

import numpy as np

from tinyvit.exercises.exercise import edit_solution, edit_sources
from tinyvit.exercises.general_mistakes import (
    NOT_WRITTEN,
    find_factor,
    find_rearrangement,
    find_swapped_outputs,
    forgotten_dy,
    general_mistake,
)
from tinyvit.exercises.kinds import kinds_of_mistakes, with_step
from tinyvit.exercises.outputs import agree
from tinyvit.exercises.parts import mistakes_of_parts

MIXED_AXES = "two axes are mixed up", "With equal sizes it is right."


def recognise(attempt):
    """The fewest mistakes that explain the wrong outputs, as far as possible: {mistakes: names of the outputs}.

    The key has (name, hint) of one mistake, or of two that were made together.
    """
    exercise, special = attempt.exercise, attempt.case is not attempt.exercise.known_cases[0]
    hint, moved = find_swapped_outputs(attempt, attempt.wrong)
    if 1 < len(moved) == len(attempt.wrong):
        return {(("the outputs stand in another order", hint),): moved}
    found, left, fits = explain(attempt, singles(exercise.mistakes), attempt.wrong)
    if not special and is_untouched(attempt, left):
        return {(NOT_WRITTEN,): tuple(left)}
    if left:
        found, left, fits = explain(attempt, singles(mistakes_of_parts(exercise.name)), attempt.wrong, fits)
    for name in left if not special else ():
        in_any = general_mistake(attempt, name)
        if in_any is not None:
            found[in_any,] = (*found.get((in_any,), ()), name)
    left = [name for name in left if not any(name in outputs for outputs in found.values())]
    if left:
        # Any formula may give NaN, and many are right but for large numbers.
        exact = attempt.case.tolerance == exercise.tolerance
        finite = [name for name in left if exact and np.isfinite(attempt.got[name]).all()]
        of_kinds, rest, fits = explain(attempt, kinds_of_mistakes(exercise.name), finite)
        if len(found) == 1 and any(same.issuperset(attempt.wrong) for _, same, _ in fits):
            return {mistakes: tuple(attempt.wrong) for mistakes in found}  # the kind has a name of its own there
        if rest or len(found.keys() | of_kinds) > 1:
            pairs, none, _ = explain(attempt, two_mistakes(attempt), attempt.wrong)
            if len(pairs) == 1 and not none:
                return pairs
        found |= {(with_step(*kind),): names for (kind,), names in of_kinds.items()}
    if special and not found and attempt.case not in exercise.equal_cases:
        return {(attempt.case.mistake,): tuple(attempt.wrong)}
    return found


def recognise_equal(attempt):
    """The mistakes, as of `recognise`, of a function that raises an error where sizes differ, and that was tried with
    equal ones."""
    return recognise(attempt) if attempt.wrong else {(MIXED_AXES,): ()}


def is_untouched(attempt, left):
    """Whether all outputs are wrong and zero, as those of starter code."""
    if len(left) < len(attempt.problems):
        return False
    outputs = [attempt.got[name] for name in left]
    return all(one.size and not one.any() for one in outputs)


def singles(mistakes):
    return (((mistake.explanation,), mistake.formula) for mistake in mistakes)


def explain(attempt, candidates, left, fits=()):
    """({mistakes: outputs}, unexplained outputs, what fits), chosen greedily: the candidate that explains most of the
    rest comes next, and of several the one that contradicts the fewest outputs. One that explains all ends the search.

    candidates   (mistakes, a formula that makes them, or its outputs)
    fits         (mistakes, outputs that they explain, how many they don't) of candidates before these
    """
    found, fits = {}, list(fits)
    for mistakes, formula in candidates if left else ():
        same, others = attempt.compare(formula)
        if same.intersection(left):
            fits.append((mistakes, same, -len(others)))
            if not others and same.issuperset(left):
                break
    while left and fits:
        mistakes, same, _ = max(fits, key=lambda fit: (len(fit[1].intersection(left)), fit[2]))
        if same.isdisjoint(left):
            break
        found[mistakes] = (*found.get(mistakes, ()), *(name for name in left if name in same))
        left = [name for name in left if name not in same]
    return found, left, fits


# -- two mistakes in one output -------------------------------------------------------------------------------------


def two_mistakes(attempt):
    """Pairs of mistakes: ((name, hint) of both, a formula or the outputs), lazily. Either their edits of the solution
    are made together, or one is a general mistake, applied to the other's result."""
    mistakes = attempt.exercise.mistakes
    yield from edited_pairs(attempt.exercise.right, mistakes + forgotten_dy(attempt.exercise))
    names = [name for name in attempt.wrong if np.isfinite(attempt.got[name]).all()]
    for mistake in mistakes:
        outputs = attempt.evaluate(mistake.formula)
        for name in [name for name in names if name in outputs]:
            both = attempt.case, attempt.got[name], outputs[name]
            in_any = find_factor(*both) or find_rearrangement(name, *both)
            if in_any and not agree(outputs[name], attempt.expected[name], attempt.case.tolerance):
                yield (mistake.explanation, in_any), {name: attempt.got[name]}


def edited_pairs(solution, mistakes):
    """The solution with the edits of both, as far as the other's text stands outside of what the first has written:
    inside it, the second edit would not be what its words say."""
    for one, other in combinations(mistakes, 2):
        if one.edits and other.edits and one.explanation != other.explanation:
            with contextlib.suppress(Exception):  # two edits together may make no sense
                blanked = tuple((part, old, new and "\0") for part, old, new in one.edits)
                edit_sources(solution, blanked + other.edits)
                yield (one.explanation, other.explanation), edit_solution(solution, one.edits + other.edits)
