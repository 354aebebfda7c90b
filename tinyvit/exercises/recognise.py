"""Recognises the mistake behind a wrong answer.

A mistake is recognised by its numbers: for the same random arguments, the wrong formula gives what the learner's
function gave. The learner's source isn't read. First come the exercise's own mistakes, then its parts',
general ones, and pairs.
"""

from tinyvit.exercises.general_mistakes import agree, find_swapped_outputs, general_mistake
from tinyvit.exercises.parts import mistakes_of_parts
from tinyvit.exercises.two_mistakes import two_mistakes


def recognise(attempt):
    """The fewest mistakes that explain the wrong outputs, as far as possible: {mistakes: names of the outputs}.

    The key has (name, hint) of one mistake, or of two that were made together.
    """
    on_purpose = [(mistake, attempt.evaluate(mistake.formula)) for mistake in attempt.exercise.mistakes]
    singles = [((mistake.explanation,), outputs) for mistake, outputs in on_purpose]
    found, left = explain(attempt, singles, attempt.wrong)
    if left:
        of_parts = mistakes_of_parts(attempt.exercise.name)
        singles += [((mistake.explanation,), attempt.evaluate(mistake.formula)) for mistake in of_parts]
        found, left = explain(attempt, singles, attempt.wrong)
    if attempt.case.mistake and not found:
        return {(attempt.case.mistake,): tuple(attempt.wrong)}
    hint, moved = find_swapped_outputs(attempt, left)
    if moved:
        found[("the outputs stand in another order", hint),] = moved
    for name in [name for name in left if name not in moved]:
        in_any = general_mistake(attempt, name)
        if in_any is not None:
            found[in_any,] = (*found.get((in_any,), ()), name)
    left = [name for name in left if not any(name in names for names in found.values())]
    if left:
        pairs = list(two_mistakes(attempt, on_purpose))
        of_all, rest = explain(attempt, pairs, attempt.wrong)
        if len(of_all) == 1 and not rest:
            return of_all
        made = {mistake for mistakes in found for mistake in mistakes}
        pairs.sort(key=lambda pair: made.isdisjoint(pair[0]))  # first those with one that was made anyhow
        found |= explain(attempt, pairs, left)[0]
    return found


def explain(attempt, candidates, left):
    """({mistakes: outputs}, unexplained outputs), chosen greedily: the candidate that explains most of the rest comes
    next, and of several the one that contradicts the fewest outputs.

    candidates   (mistakes, their outputs by name)
    """
    found, fits = {}, []
    for mistakes, outputs in candidates:
        same = {name for name in outputs if agree(attempt.got[name], outputs[name], attempt.case.tolerance)}
        fits.append((mistakes, same, len(same) - len(outputs)))
    while left and fits:
        mistakes, same, _ = max(fits, key=lambda fit: (len(fit[1].intersection(left)), fit[2]))
        if same.isdisjoint(left):
            break
        found[mistakes] = (*found.get(mistakes, ()), *(name for name in left if name in same))
        left = [name for name in left if name not in same]
    return found, left
