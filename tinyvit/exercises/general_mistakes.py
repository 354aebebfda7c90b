"""Mistakes that can be made in any exercise, recognised in one output."""

import re
from itertools import combinations, permutations

import numpy as np

from tinyvit.exercises.catalogue import EXERCISES
from tinyvit.exercises.exercise import Mistake, edit_solution
from tinyvit.exercises.outputs import agree

FORGOTTEN_DY = "dy is forgotten", "It is the gradient for a dy of ones: the chain rule multiplies by dy."
NOT_WRITTEN = (
    "nothing is written yet",
    "It returns zeros or raises NotImplementedError, as starter code does: write your own lines in its place. "
    "`describe` says what comes in and what goes out, and `hint` asks a first question.",
)


def general_mistake(attempt, name):
    """(mistake, hint) if one output looks like a mistake of any exercise, else None."""
    got, right, case = attempt.got[name], attempt.expected[name], attempt.case
    if got.size and not np.isfinite(got).any():
        return "NaN or infinite", "Look for 0/0, a logarithm or root of a negative number, or an exp that overflows."
    if got.dtype.kind in "iu":
        return "integers", f"{name} has the dtype {got.dtype}: were the numbers written into an array of ints?"
    if got.shape == right.shape and not got.any():
        return "zeros", "It is zero everywhere, like an array that nothing was written to."
    if any(isinstance(given, np.ndarray) and agree(got, given, case.tolerance) for given in attempt.given):
        return "an argument, unchanged", "One of the arguments is returned unchanged: nothing is computed yet."
    for mistake in forgotten_dy(attempt.exercise):
        if agree(got, attempt.evaluate(mistake.formula)[name], case.tolerance):
            return mistake.explanation
    for argument, given in zip(attempt.exercise.arguments, attempt.given):
        if isinstance(given, np.ndarray) and given.shape == got.shape == right.shape:
            for sign, mistake in ((1, "a term that does not belong here"), (-1, "a term is forgotten")):
                if agree(sign * (got - right), given, case.tolerance):
                    return mistake, f"The difference from the right numbers is {argument}."
    found = find_factor(case, got, right)
    found = found if holds_elsewhere(attempt, name, found) else None
    return found or find_lost_digits(got, right) or find_rearrangement(name, case, got, right)


def forgotten_dy(exercise):
    """The mistake of a backward that doesn't multiply by dy; none of another function."""
    if "dy" not in exercise.arguments:
        return []
    edits = ((exercise.name, "dy = np.ones_like(dy)", None),)
    return [Mistake(*FORGOTTEN_DY, edit_solution(exercise.right, edits), edits)]


def find_factor(case, got, right):
    """(mistake, hint) if `got` differs from `right` by a sign or a factor."""
    if agree(got, -right, case.tolerance):
        return "the sign is wrong", "Every entry is minus what it should be."
    if got.shape != right.shape or not got.size or not np.isfinite(got).all():
        return None
    factor = np.vdot(right, got) / np.vdot(right, right)
    if not factor or f"{factor:.6g}" == "1" or not agree(got, factor * right, case.tolerance):
        return None
    hint = sizes_hint(factor, case.sizes) or power_of_ten_hint(factor)
    entry = "Every entry" if got.size > 1 else "It"
    if got.size == 1 and not hint:
        return None
    return "a constant factor", f"{entry} is {factor:.6g} times what it should be{hint or '.'}"


def holds_elsewhere(attempt, name, found):
    """Whether a factor is one in the witness as well: the same number, or the same product of sizes."""
    other = attempt.witness
    if other is None or found is None or found[0] != "a constant factor":
        return True
    again = find_factor(other.case, other.got[name], other.expected[name])
    return again is not None and (again == found or again[1].partition("and that is")[2] == found[1].partition(
        "and that is")[2] != "")  # fmt: skip


def power_of_ten_hint(factor):
    """The hint for a single number that is wrong by a power of ten: any number is a multiple of any other."""
    power = np.log10(factor) if 0 < factor < np.inf else 0.0
    if abs(power) < 1 or abs(power - round(power)) > 1e-12:
        return ""
    return ", a power of ten: is a division by a small step missing, or one too many?"


def find_lost_digits(got, right):
    """(mistake, hint) if `got` is right up to its last digits."""
    if got.shape != right.shape or not np.abs(got - right).max() < 1e-4 * np.abs(right).max():
        return None
    why = "float32" if got.dtype.itemsize < 8 else "a rounded constant, another ε, or a finite difference"
    return "right to a few digits only", f"It is close to the right numbers, as with {why}."


def find_rearrangement(name, case, got, right):
    """(mistake, hint) if `got` differs from `right` by the order of axes, the shape, or sums over axes."""
    for axes in list(permutations(range(right.ndim)))[1:]:
        if agree(got, right.transpose(axes), case.tolerance):
            return "transposed", f"The numbers are right, but the axes are in the order {axes}."
    if got.size == right.size and got.shape != right.shape and agree(got.reshape(right.shape), right, case.tolerance):
        return "another shape", f"The numbers are right; reshape {name} to {right.shape}."
    return find_wrong_sum(got, right, case.tolerance)


def find_swapped_outputs(attempt, names):
    """(hint, names) of the outputs that equal other outputs."""
    taken = {}
    for name in names:
        for other, right in attempt.expected.items():
            if other != name and agree(attempt.got[name], right, attempt.case.tolerance):
                taken.setdefault(name, f"as {name} is {other}")
    return f"What you return {', '.join(taken.values())}.", tuple(taken)


def sizes_hint(factor, sizes):
    """The case's sizes that a factor is a product of, as in `, and that is 1/(B·N)`."""
    letters = [letter for letter, size in sizes.items() if size > 1]
    for count in (1, 2, 3):
        for chosen in combinations(letters, count):
            product, text = float(np.prod([sizes[letter] for letter in chosen])), "·".join(chosen)
            for power, written in ((1, "{}"), (-1, "1/({})"), (0.5, "√({})"), (-0.5, "1/√({})")):
                if np.isclose(factor, product**power, rtol=1e-9):
                    what = written.format(text)
                    return f", and that is {what}: is a mean taken for a sum, or a sum for a mean?"
    return ""


def find_wrong_sum(got, right, tolerance):
    """(mistake, hint) if `got` differs from `right` by sums over axes."""
    for more, less, mistake, hint in (
        (got, right, "not summed over all it was broadcast to", "It must also be summed over the axes {}."),
        (right, got, "summed over too much", "The sum over the axes {} is one too many."),
    ):
        for count in range(1, more.ndim + 1):
            for axes in combinations(range(more.ndim), count):
                if agree(more.sum(axes), less, tolerance):
                    return mistake, hint.format(axes)
    return None


def find_in_message(message):
    """(mistake, hint) for the message of an exception: of an operation that isn't there, of a function of `math`, or
    float(), that got a whole array, of an array taken for a cache, or of two shapes that differ by one axis; None for
    any other."""
    lacking = re.fullmatch(r"name '(\w+)' is not defined", message)
    if lacking and lacking[1].removeprefix("my_") in EXERCISES:
        return f"{lacking[1]} isn't there", (
            f"A function gets its arguments alone, and no operation and no cache: write the forward of {lacking[1]} "
            "anew, in your function or above it."
        )
    if lacking := re.fullmatch(r"'numpy.ndarray' object has no attribute '(\w+)'", message):
        return f"an array has no {lacking[1]}", (
            "A function gets arrays and no cache: compute anew what the forward's cache would hold."
        )
    if "can be converted to Python scalars" in message:
        return "a function of one number gets an array", (
            "The functions of Python's math, and float(), take one number. NumPy's take arrays: np.exp, np.sqrt, "
            "np.tanh. NumPy has no erf: scipy.special.erf takes arrays, and so does np.vectorize(math.erf)."
        )
    shapes = [tuple(map(int, re.findall(r"\d+", shape))) for shape in re.findall(r"\(([\d,]+)\)", message)]
    if "broadcast" not in message or len(shapes) != 2:
        return None
    after, before = sorted(shapes, key=len)
    for axis in range(len(before)):
        if before[:axis] + before[axis + 1 :] == after:
            kept = (*before[:axis], 1, *before[axis + 1 :])
            return "keepdims=True is missing", (
                f"Or an axis of length 1: NumPy lines axes up from the right, so that the "
                f"{after[-1] if after else 'number'} of {after} meets the last axis of {before}, and not the one that "
                f"it belongs to. It should be {kept}: so a sum, mean or maximum leaves it with keepdims=True, and [:, "
                "None] makes it."
            )
    return None
