"""The inputs that a solution is graded on: shapes and numbers of a seed, which nobody knew before."""

from tinyvit.keys import Key


def hidden_cases(exercise, seed):
    """[(title, case)]: those of `check`, of which some have sizes that were drawn, and the first inputs again."""
    cases = exercise.cases(seed)
    return [(case.title, case) for case in cases] + [("the first inputs again", cases[0])]


def draw(exercise, case, seed):
    """A case's arguments, with a function among them moved: nobody can tell which one it was."""
    scale, shift = map(float, Key(seed, path="exercises.grading.moved").generator().uniform(0.6, 1.4, 2))
    return [
        (lambda x, f=one: f(scale * x + shift)) if callable(one) else one for one in exercise.draw(case, seed)
    ]
