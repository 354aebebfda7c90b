"""Recognises the mistake behind a wrong answer.

A mistake is recognised by its numbers: for the same random arguments, the wrong formula gives what the learner's
function gave. The learner's source isn't read. First come the exercise's own mistakes, then its
parts', general ones, and pairs.
"""

from typing import NamedTuple

from tinyvit.exercises.general_mistakes import agree, find_swapped_outputs, general_mistake
from tinyvit.exercises.parts import mistakes_of_parts
from tinyvit.exercises.two_mistakes import two_mistakes


class Likeness(NamedTuple):
    """Mistakes that outputs look like: one, or two that were made together."""

    mistakes: tuple[tuple[str, str], ...]  # name and hint of each
    outputs: tuple[str, ...]


def recognise(exercise, case, arguments, got, expected, wrong):
    """The fewest mistakes that explain the wrong outputs, as far as possible.

    arguments        gives the case's arguments, new ones at each call
    got, expected    outputs by name
    wrong            the names of those that differ
    """
    on_purpose = [(mistake, exercise.evaluate(mistake.formula, arguments())) for mistake in exercise.mistakes]
    singles = [((mistake.explanation,), outputs) for mistake, outputs in on_purpose]
    found, left = explain(singles, got, wrong, case.tolerance)
    if left:
        of_parts = mistakes_of_parts(exercise.name)
        singles += [((mistake.explanation,), exercise.evaluate(mistake.formula, arguments())) for mistake in of_parts]
        found, left = explain(singles, got, wrong, case.tolerance)
    if case.mistake and not found:
        return [Likeness((case.mistake,), tuple(wrong))]
    hint, moved = find_swapped_outputs(left, got, expected, case.tolerance)
    if moved:
        found.append(Likeness((("the outputs stand in another order", hint),), moved))
    for name in [name for name in left if name not in moved]:
        in_any = general_mistake(name, exercise, case, arguments, got[name], expected[name])
        if in_any is not None:
            found.append(Likeness((in_any,), (name,)))
    left = [name for name in left if not any(name in likeness.outputs for likeness in found)]
    if left:
        pairs = list(two_mistakes(exercise, case, arguments, got, wrong, on_purpose))
        of_all, rest = explain(pairs, got, wrong, case.tolerance)
        if len(of_all) == 1 and not rest:
            return of_all
        made = {mistake for likeness in found for mistake in likeness.mistakes}
        pairs.sort(key=lambda pair: made.isdisjoint(pair[0]))  # first those with one that was made anyhow
        found += explain(pairs, got, left, case.tolerance)[0]
    return merge(found)


def explain(candidates, got, wrong, tolerance):
    """(Likenesses, unexplained outputs), chosen greedily: the candidate that explains most of the rest comes next,
    and of several the one that contradicts the fewest outputs.

    candidates   (mistakes, their outputs by name)
    """
    found, left = [], list(wrong)
    fits = [
        (mistakes, {name for name in left if name in outputs and agree(got[name], outputs[name], tolerance)}, outputs)
        for mistakes, outputs in candidates
    ]
    while left and fits:
        most = max(len(names.intersection(left)) for _, names, _ in fits)
        best = [fit for fit in fits if len(fit[1].intersection(left)) == most]
        if most and len(best) > 1:
            best.sort(key=lambda fit: sum(not agree(got[name], fit[2][name], tolerance) for name in fit[2]))
        mistakes, names, _ = best[0]
        outputs = tuple(name for name in left if name in names)
        if not outputs:
            break
        found.append(Likeness(mistakes, outputs))
        left = [name for name in left if name not in outputs]
    return found, left


def merge(found):
    """Join Likenesses of the same mistakes."""
    outputs = {}
    for mistakes, names in found:
        outputs[mistakes] = (*outputs.get(mistakes, ()), *names)
    return [Likeness(mistakes, names) for mistakes, names in outputs.items()]
