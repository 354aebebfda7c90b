"""Checks what a function returned: the number of values, their types, shapes and numbers."""

import inspect
from dataclasses import dataclass

import numpy as np

from tinyvit.exercises.domain import Case
from tinyvit.exercises.exercise import Exercise, flatten


class UnusableOutput(Exception):
    """The returned value can't be compared; the message says why, in a sentence."""


@dataclass
class Attempt:
    """The result of a learner's function for one case, beside the right one.

    given           the arguments
    value           what the function returned, unless `got` is given
    witness         the Attempt for another case, by which mistakes are told apart that look alike in this one; or None
    got, expected   the outputs by name
    problems        the error in each, or None
    wrong           the names of those with an error

    Raises UnusableOutput as `outputs_of` does.
    """

    exercise: Exercise
    case: Case
    given: tuple
    value: object = None
    witness: "Attempt | None" = None
    got: dict | None = None

    def __post_init__(self):
        for array in arrays_in(self.given):  # a wrong formula must not change them
            array.flags.writeable = False
        right, case = self.exercise.answer(self.exercise.right, self.given), self.case
        if self.got is None:
            self.got = outputs_of(self.exercise, right, self.value)
        self.expected = self.exercise.label_outputs(right)
        self.problems = {name: describe_error(self.got[name], one, case.tolerance, self.exercise.entry)
                         for name, one in self.expected.items()}  # fmt: skip
        self.wrong = [name for name, problem in self.problems.items() if problem]

    def evaluate(self, formula):
        """The outputs of a formula for the same arguments, by name."""
        return self.exercise.evaluate(formula, self.given)

    def compare(self, formula):
        """(names of outputs that are as a formula gives them, names of others that it gives), in the witness, too.

        formula   a function, or its outputs by name for this case alone
        """
        outputs = formula if isinstance(formula, dict) else self.evaluate(formula)
        tolerance, known = self.case.tolerance, outputs.keys() & self.got
        same = {name for name in known if agree(self.got[name], outputs[name], tolerance)}
        same -= {name for name in same.intersection(self.wrong) if agree(self.expected[name], outputs[name], tolerance)}
        if self.witness and same.intersection(self.wrong) and outputs is not formula:
            same &= self.witness.same_as(formula)
        return same, known - same

    def same_as(self, formula):
        """The names of the outputs that are as a formula gives them."""
        outputs = self.evaluate(formula)
        return {name for name in outputs.keys() & self.got if agree(self.got[name], outputs[name], self.case.tolerance)}


def agree(got, other, tolerance):
    """Whether two arrays are equal up to rounding, with NaN in the same entries."""
    if got.shape != other.shape:
        return False
    near = (abs(got - (other + 0.0)) <= tolerance + tolerance * abs(other)) & np.isfinite(other)
    return bool((near | (got == other) | ((got != got) & (other != other))).all())


def arrays_in(value):
    """The arrays in a list, a tuple or a dict of them."""
    if isinstance(value, np.ndarray):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [array for part in parts for array in arrays_in(part)]


def outputs_of(exercise, expected, value):
    """The outputs as arrays by name; raises UnusableOutput if the number of values or a type is wrong.

    expected   what the solution returns for the same arguments
    """
    if exercise.calls is not None:
        return {name: stack_calls(name, exercise.entry, value) for name in exercise.returns}
    values = split_outputs(list(exercise.returns), value)
    for name, right in exercise.name_outputs(expected).items():
        if isinstance(right, dict):
            values[name] = dict_entries(name, right, values[name])
    outputs = flatten(values) | values  # also a dict in the place of an array
    return {name: check_output(name, outputs[name], right.shape, numbers=len(values) > 1)
            for name, right in exercise.label_outputs(expected).items()}  # fmt: skip


def stack_calls(name, entry, values):
    """The numbers that a function returned in many calls, as one array."""
    for place, value in enumerate(values):
        try:
            if np.shape(check_output(name, split_outputs([name], value)[name], ())):
                raise UnusableOutput(f"{name} is {type_text(value)}; expected a number.")
        except UnusableOutput as problem:
            raise UnusableOutput(f"{problem} That was at {entry} {place}.") from None
    return np.array(values, "float64")


def split_outputs(names, value):
    """The returned values by name."""
    wanted = f"{len(names)} values, {', '.join(names)}" if len(names) > 1 else f"{names[0]} alone"
    if value is None:
        raise UnusableOutput(f"It returned None; expected {wanted}. Is a `return` missing at its end?")
    if len(names) == 1:
        if isinstance(value, tuple):
            wanted = f"{wanted}, without a cache or a last comma"
            raise UnusableOutput(f"It returned a tuple of {len(value)}; expected {wanted}.")
        return {names[0]: value}
    if not isinstance(value, (tuple, list)):
        raise UnusableOutput(f"It returned {type_text(value)}; expected {wanted}.")
    if len(value) != len(names):
        raise UnusableOutput(f"It returned {len(value)} value{'s' * (len(value) != 1)}; expected {wanted}.")
    return dict(zip(names, value))


def dict_entries(name, expected, value):
    """The entries of a returned dict."""
    if not isinstance(value, dict):
        raise UnusableOutput(f"{name} is {type_text(value)}; expected a dict of {len(expected)} arrays by name.")
    missing = [key for key in expected if key not in value]
    unexpected = [str(key) for key in value if key not in expected]
    lacks = [f"lacks {', '.join(missing)}"] if missing else []
    has = [f"has the unexpected {', '.join(unexpected)}"] if unexpected else []
    if lacks or has:
        raise UnusableOutput(f"{name} {' and '.join(lacks + has)}.")
    return {key: value[key] for key in expected}


def check_output(name, value, shape, numbers=True):
    """One output as an array; a number will do where one is expected.

    numbers   whether a number is an array of no dimensions also where none is expected, so that a sum over too much
              among other outputs is recognised, and the others are looked at
    """
    fits = isinstance(value, (int, float, np.number)) and (numbers or shape == ())
    if not isinstance(value, np.ndarray) and not fits:
        wanted = "a number" if shape == () else f"a NumPy array {shape}"
        make = "; np.array(…) makes one of it" if isinstance(value, (list, tuple)) and shape else ""
        raise UnusableOutput(f"{name} is {type_text(value)}; expected {wanted}{make}.")
    value = np.asarray(value)
    if value.dtype.kind not in "fiu":
        raise UnusableOutput(f"{name} has the dtype {value.dtype}; expected real numbers, float64.")
    return value


def type_text(value):
    """A value's type in a few words."""
    if value is None:
        return "None"
    if inspect.isgenerator(value):
        return "a generator, as of a function with `yield`"
    if isinstance(value, np.ndarray):
        return f"one array {value.shape}"
    name = type(value).__name__
    return f"a{'n' if name[0] in 'aeiou' else ''} {name}"


def describe_error(got, expected, tolerance, entry="entry"):
    """A description of the error in one output, or None."""
    if got.shape != expected.shape:
        return f"has the shape {got.shape}, and should have {expected.shape}"
    error = np.abs(got - expected) / np.maximum(1, np.abs(expected))
    lost = ~np.isfinite(got)
    wrong = lost | ~(error <= tolerance)
    if not wrong.any():
        return None
    worst = np.unravel_index(np.argmax(np.where(lost, np.inf, error)), got.shape)
    place = f"{entry} ({', '.join(map(str, worst))}) " if worst else ""
    count = f"wrong in {wrong.sum()} of {wrong.size} entries: " if wrong.size > 1 else "wrong: "
    digits = 6 if error[worst] > 1e-4 or lost[worst] else 15
    # 0 where only rounding is left, since 1e-17 looks like a result.
    right, is_now = (0 if abs(value) <= tolerance else value for value in (expected[worst], got[worst]))
    return f"{count}{place}should be {right:.{digits}g} and is {is_now:.{digits}g}"


def changed_arguments(names, before, after):
    """The names of the arguments that a function changed in place."""
    return [name for name, old, new in zip(names, before, after) if not is_equal(old, new)]


def is_equal(old, new):
    if isinstance(old, dict):
        return old.keys() == new.keys() and all(is_equal(old[key], new[key]) for key in old)
    return np.array_equal(old, new)
