"""The domain of an exercise, and the cases that come from it.

A domain is a text of words, one for each size or option:

    B               a size: 3 or so in the ordinary case, another one in the second, and 1 in a case of its own
    H=9,11          a size with values of its own: in the ordinary case, in the second, and the others in cases of
                    their own
    stride=2,1,3    an option of more than one letter, likewise; the second value has a case of its own, too
    n=2,3,N,0       a value may be another size
    momentum:0,1    an argument that `inputs` draws: once with each of these values

Beside them, each argument in `varied` is tried with the numbers in RANGES. What doesn't fit together, and what the
solution has no finite answer for, is left out.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tinyvit.keys import Key

TOLERANCE = 1e-11  # of |got − expected| / max(1, |expected|): far above rounding, far below any other formula
# Sizes of the two ordinary cases, in the order of the domain's words. In each all differ, and none is 2. No two
# products of up to three of them, and no two differences, are equal in both, and each difference is another one in the
# second: a wrong factor is never another one, too, nor a size plus a number.
FIRST = 3, 4, 6, 5, 7, 9, 11, 13
SECOND = 7, 6, 5, 3, 10, 4, 8, 9
MAX_NUMBERS = 200_000  # product of the sizes of a random case
MAX_TRIES = 1000  # of drawing sizes that fit together
ORDINARY = "ordinary numbers"


def levels(x):
    """1000 and −1000 for the rows of x in turn."""
    signs = 1000.0 * (-1) ** np.arange(x.shape[-2] if x.ndim > 1 else len(x))
    return signs[:, None] if x.ndim > 1 else signs


OVERFLOW = (
    "does exp overflow?",
    "exp(1000) is infinite, and exp(−1000) is 0, so that 0/0 or log 0 may come out: a softmax subtracts each row's own "
    "maximum before exp. What is to be smaller than any number is −∞, not a number of yours.",
)
# title: (what becomes of an argument, tolerance, (what may be wrong, a hint)). Sums of large numbers are rounded more,
# in any right formula.
RANGES = {
    "negative numbers only": (
        lambda x: -np.abs(x) - 0.5, TOLERANCE,
        ("does a maximum begin at 0?", "A maximum begins at −∞, or at the first of the numbers."),
    ),
    "all numbers equal": (
        lambda x: np.full_like(x, x.flat[0]), TOLERANCE,
        ("0/0?", "Is something divided by a difference or a variance?"),
    ),
    "many equal numbers": (np.round, TOLERANCE, ("equal ones?", "What becomes of equal numbers, and of 0?")),
    "rows near 1000 and −1000": (lambda x: x + levels(x), 1e-7, OVERFLOW),
    "numbers from −2000 to 2000": (lambda x: 1000 * x, 1e-7, OVERFLOW),
    "numbers near 10⁷": (
        lambda x: x + 1e7, 1e-6,
        (
            "a variance as E[x²] − E[x]²?",
            "That is right on paper, but it subtracts two large numbers that are nearly equal, and few digits of the "
            "difference are left. Subtract the mean first, then square.",
        ),
    ),
}  # fmt: skip
AT_ZERO = (
    "an empty slice, or a division by 0?",
    "A slice such as x[p:-p] is empty where p is 0, and a mean may be one of nothing.",
)
AT_ONE = "an axis of length 1?", "Is it dropped, as by squeeze, or broadcast? Is something divided by n − 1?"
ANY = "", "Here something differs that the function doesn't take into account."
OTHER_SIZES = "a size of yours?", "Sizes are read from the shapes, and a share of them need not be a whole number."


@dataclass(frozen=True)
class Case:
    """Inputs that a function is called with; `hint` says what may be wrong on these alone, and gives a hint."""

    title: str
    inputs: Callable  # a NumPy Generator -> the arguments
    sizes: dict = field(default_factory=dict)  # by the word that stands for each
    tolerance: float = TOLERANCE
    hint: tuple[str, str] = ANY

    @property
    def mistake(self):
        """(name, hint) of the mistake of a function that is right in the ordinary cases."""
        cause, hint = self.hint
        return f"wrong only with {self.title}{cause and f' ({cause})'}", hint


def read_domain(text):
    """({word: its values}, {argument: values}) of a domain."""
    sizes, edges, free = {}, {}, iter(zip(FIRST, SECOND))
    for word in text.split():
        name, _, values = word.partition("=")
        argument, _, at = name.partition(":")
        if at:
            edges[argument] = [float(value) for value in at.split(",")]
        elif values:
            sizes[name] = [value if value.isalpha() else int(value) for value in values.split(",")]
        else:
            sizes[name] = [*next(free), 1]
    return sizes, edges


def domain_cases(exercise):
    """The cases of an exercise that are the same for every seed, up to their numbers."""
    sizes, edges = read_domain(exercise.domain)
    first, second = ({name: values[i] for name, values in sizes.items()} for i in (0, 1))
    other = "other sizes" if sizes else "other numbers"
    found = [exercise.case(ORDINARY, first), exercise.case(other, second, hint=OTHER_SIZES)]
    for name, values in sizes.items():
        for value in values[1 if len(name) > 1 else 2 :]:
            hint = {0: AT_ZERO, 1: AT_ONE}.get(value, ANY)
            found.append(exercise.case(f"{name} = {value}", first | {name: first.get(value, value)}, hint=hint))
    for argument, values in edges.items():
        for value in values:
            found.append(exercise.case(f"{argument} = {value:g}", first, [argument], lambda x, value=value: value))
    varied = varied_arguments(exercise, first)
    for title, (change, tolerance, hint) in RANGES.items() if varied else ():
        found.append(exercise.case(title, first, varied, change, tolerance, hint))
    return [case for case in [*found, *exercise.extra] if fits(exercise, case)]


def varied_arguments(exercise, sizes):
    """The names of the arguments that may be any numbers, of a function that gets all of them."""
    drawn = zip(exercise.given, exercise.inputs(np.random.default_rng(0), **sizes))
    arrays = [name for name, value in drawn if getattr(value, "dtype", None) == "float64" and name != "dy"]
    names = arrays[:1] if exercise.varied is None else exercise.varied.split()
    return [name for name in names if name in exercise.arguments]


def random_cases(exercise, seed, count=2):
    """Cases of sizes that were drawn at random; none of an exercise without sizes."""
    sizes, _ = read_domain(exercise.domain)
    random, found = Key(seed, path=f"exercises.sizes.{exercise.name}").generator(), {}
    known = {case.title for case in exercise.known_cases}
    numbers = {name: [value for value in values if isinstance(value, int)] for name, values in sizes.items()}
    for _ in range(MAX_TRIES if sizes else 0):
        drawn = {name: int(random.integers(min(own), max(own) + 3)) for name, own in numbers.items()}
        title = ", ".join(f"{name} = {value}" for name, value in drawn.items())
        case = exercise.case(title, drawn)
        is_small = math.prod(max(1, value) for value in drawn.values()) < MAX_NUMBERS
        if title not in known and is_small and fits(exercise, case, seed):
            found[title] = case
        if len(found) == count:
            break
    return [*found.values()]


def fits(exercise, case, seed=0):
    """Whether the solution takes a case's inputs, and is finite on them."""
    try:
        arguments = exercise.draw(case, seed)
    except ValueError:  # sizes that don't fit together
        return False
    outputs = exercise.evaluate(exercise.right, arguments)
    return any(output.size for output in outputs.values()) and all(np.isfinite(one).all() for one in outputs.values())
