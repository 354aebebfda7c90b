"""The mistakes of a composite exercise that are those of its parts.

Nothing is written twice: the solution of a composite calls the solutions of its parts, and is run with a part replaced
by the wrong formula of that part's own exercise. `layernorm_backward` without its mean's term, put into
`block_backward`, gives what a learner's block gives with that layer norm: everywhere, or in one place alone.
"""

from functools import cache, partial

from tinyvit.exercises.catalogue import EXERCISES
from tinyvit.exercises.exercise import MISTAKES, Mistake, namespace, sources


@cache
def mistakes_of_parts(name):
    """The mistakes of all parts of the exercise of that name, as its own."""
    made = []
    parts, places = parts_of(name), EXERCISES[name].places
    for part in parts:
        forward = part.removesuffix("_backward")
        for mistake in MISTAKES.get(part, []):
            twin = [other for other in MISTAKES.get(forward, []) if other.name == mistake.name and forward != part]
            for place, calls in ({"": dict.fromkeys(parts)} | places).items():  # None: in all calls
                if part in calls:
                    at, wrong = f", {place}" if place else "", {part: (mistake, calls[part])}
                    if twin and forward in calls:
                        both = wrong | {forward: (twin[0], calls[forward])}
                        made.append(make_mistake(name, mistake, f"{forward} and {part}{at}", both))
                    made.append(make_mistake(name, mistake, f"{part}{at}", wrong))
    if {"split_heads", "join_heads"} <= set(parts):
        both = {part: (MISTAKES[part][0], None) for part in ("split_heads", "join_heads")}
        said = Mistake("heads are split and joined by a reshape without transpose", both["split_heads"][0].hint, None)
        made.append(make_mistake(name, said, "split and join", both))
    return made


def make_mistake(name, mistake, where, replaced):
    return Mistake(f"{mistake.name} ({where})", mistake.hint, partial(run_with_parts, name, replaced))


def parts_of(name):
    """The functions that a solution calls, and those that these call; what is made of others comes before them."""
    return [part for part in reversed(sources(EXERCISES[name].right)) if part != name]


def run_with_parts(name, replaced, *arguments):
    """The solution of that name with parts replaced by wrong ones.

    replaced   the mistake by the part's name, and in which of its calls it is made; None: in all
    """
    space = namespace(sources(EXERCISES[name].right))
    for part, (mistake, calls) in replaced.items():
        space[part] = make_partly_wrong(space[part], mistake, calls)
    return space[name](*arguments)


def make_partly_wrong(right, mistake, calls):
    """A part that makes the mistake in some of its calls."""
    made = 0

    def function(*arguments):
        nonlocal made
        made += 1
        return (mistake.formula if calls is None or made - 1 in calls else right)(*arguments)

    return function
