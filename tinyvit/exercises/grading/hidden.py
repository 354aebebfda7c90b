"""The inputs that a solution is graded on: shapes and numbers of a seed, which nobody knew before."""

import numpy as np

from tinyvit.keys import Key

MAX_TRIES = 5000  # of drawing sizes that fit together
MIN_GROWTH = 4  # by which a side may exceed the exercise's own, or by half of that


def hidden_cases(exercise, seed):
    """[(title, case)]: shapes that were drawn, the exercise's own sizes and traps, and the first inputs again."""
    drawn = [exercise.case_of(f"shapes {number}", sizes) for number, sizes in enumerate(hidden_sizes(exercise, seed))]
    titled = [(", ".join(f"{letter} = {side}" for letter, side in case.sizes.items()), case) for case in drawn]
    titled += [(case.title, case) for case in exercise.cases()]
    return [*titled, ("the first inputs again", titled[0][1])]


def hidden_sizes(exercise, seed, count=2):
    """Sizes that were drawn at random, other than the exercise's own; none for an exercise without sizes.

    Some may be equal; those of the exercise itself, which are tried too, are all different. Which sizes fit together
    only the exercise knows: those are taken that its right answer accepts.
    """
    if not any(exercise.sizes):
        return []
    random = Key(seed, path=f"exercises.grading.{exercise.name}").generator()
    found = []
    for attempt in range(MAX_TRIES):
        own = exercise.sizes[attempt % len(exercise.sizes)].items()
        sizes = {letter: side + int(random.integers(max(MIN_GROWTH, side // 2), endpoint=True)) for letter, side in own}
        if sizes not in (*exercise.sizes, *found) and is_accepted(exercise, exercise.case_of("a try", sizes), seed):
            found.append(sizes)
            if len(found) == count:
                return found
    raise AssertionError(f"no sizes fit the exercise {exercise.name}")


def is_accepted(exercise, case, seed):
    """Whether the right answer takes a case's inputs, and is finite on them."""
    try:
        arguments = exercise.draw(case, seed)
    except ValueError:  # a side that would be negative
        return False
    outputs = exercise.evaluate(exercise.right, arguments)
    return bool(outputs) and all(output.size and np.isfinite(output).all() for output in outputs.values())


def draw(exercise, case, seed):
    """A case's arguments, with a function among them moved: nobody can tell which one it was."""
    scale, shift = map(float, Key(seed, path="exercises.grading.moved").generator().uniform(0.6, 1.4, 2))
    return [
        (lambda x, f=one: f(scale * x + shift)) if callable(one) else one for one in exercise.draw(case, seed)
    ]
