"""The parts of an exercise: the task, the cases it is tried on, and the common mistakes."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from types import FunctionType

import numpy as np

from tinyvit.backend import Key
from tinyvit.functional import reference

TOLERANCE = 1e-11  # of |got − expected| / max(1, |expected|): far above rounding, far below any other formula


def visible_eps(random):
    """A random ε, so that a constant in the learner's function is noticed. It is large enough to show where
    it is added; the 10⁻⁶ of practice would hide that."""
    return round(float(random.uniform(0.05, 0.3)), 3)


@dataclass(frozen=True)
class Mistake:
    """A wrong formula that learners often write.

    As a rule it is the solution with `edits`, each of them one of
        (text, other)         another text, wherever this one occurs in the solution
        (part, text, other)   the same in a function that it calls
        statement             comes first and changes the arguments, as a learner does who misreads them
    """

    name: str
    hint: str
    formula: Callable  # the exercise's arguments -> all outputs, or a dict of the outputs that it gets wrong
    edits: tuple = ()

    @property
    def said(self):
        return self.name, self.hint


def edited(name, edits):
    """The solution of that name with edits, ready to be called; ValueError for a text that isn't in it."""
    return compiled(name, edits)[name]


@lru_cache(256)
def compiled(name, edits):
    """The names that a solution with edits sees, its own among them."""
    from tinyvit.exercises import solutions

    functions = {key: one for key, one in vars(solutions).items() if isinstance(one, FunctionType)}
    space = vars(solutions) | functions[name].__globals__
    space |= {key: FunctionType(one.__code__, space, key, one.__defaults__) for key, one in functions.items()}
    texts = {}
    for edit in edits:
        *part, old, new = edit if isinstance(edit, tuple) else ("\n", f"\n    {edit}\n")
        part = part[0] if part else name
        text = texts.setdefault(part, inspect.getsource(functions[part]))
        if old not in text:
            raise ValueError(f"the solution {part} has no {old!r}")
        texts[part] = text.replace(old, new, 1 if isinstance(edit, str) else -1)
    for part, text in texts.items():
        exec(compile(text, f"<{part}>", "exec"), space)
    return space


@dataclass(frozen=True)
class Case:
    """Inputs that a function is called with.

    `usual` is the mistake, its name and a hint, of a function that is right on ordinary inputs and wrong on these: a
    formula that loses its digits loses others in every order of operations, and can't be told by comparing them.
    """

    title: str
    inputs: Callable  # a NumPy Generator -> the arguments
    sizes: dict = field(default_factory=dict)  # by the letter that stands for each
    usual: tuple[str, str] | None = None
    tolerance: float = TOLERANCE


@dataclass(frozen=True)
class Exercise:
    """An exercise: a function that the learner writes.

    arguments and returns say what comes in and goes out, by name, with shapes.
    right      the package's answer
    shown      the functions of the package that `solution` shows
    inputs     (NumPy Generator, **sizes) -> the arguments
    sizes      those of the two ordinary cases: distinct ones, so that no two axes can be mixed up unnoticed
    equal      sizes that are equal as far as they can be. A product with a matrix that should have been transposed
               raises an error where sizes differ; on these it gives numbers, by which the mistake is recognised
    traps      cases in which formulas that are right on paper overflow or lose their digits
    tolerance  of the ordinary cases
    calls      the arguments -> those of each call, of a function that is called many times and gives a number each
               time; its answers are looked at as one array
    entry      the word for an array's entry in answers
    """

    name: str
    asks: str
    arguments: dict[str, str]
    returns: dict[str, str]
    right: Callable
    shown: tuple
    inputs: Callable
    sizes: tuple[dict, ...]
    equal: dict | None = None
    traps: tuple[Case, ...] = ()
    tolerance: float = TOLERANCE
    calls: Callable | None = None
    entry: str = "entry"
    mistakes: list[Mistake] = field(default_factory=list)

    def mistake(self, name, hint):
        """Decorates the formula of a mistake; the first one that fits is named."""

        def add(formula):
            self.mistakes.append(Mistake(name, hint, formula))
            return formula

        return add

    def edit(self, name, hint, *edits, outputs=None):
        """Add the mistake that the solution makes with these edits.

        outputs   those that it gets wrong, by name, where the edits would change others as well; None: all
        """

        def formula(*arguments):
            made = edited(self.name, edits)(*arguments)
            return made if outputs is None else {key: dict(zip(self.returns, made))[key] for key in outputs}

        self.mistakes.append(Mistake(name, hint, formula, edits=edits))

    def answer(self, function, arguments, asked=None):
        """The function's result for a case's arguments; a list of results if it is called many times.

        asked   a list to which the arguments of each call are added before it is made
        """
        values, asked = [], [] if asked is None else asked
        for one in [arguments] if self.calls is None else self.calls(*arguments):
            asked.append(one)
            values.append(function(*one))
        return values[0] if self.calls is None else values

    def made_by(self, formula, arguments):
        """The outputs of a formula by name; none if shapes don't fit or an arithmetic error occurs."""
        try:
            with np.errstate(all="ignore"), reference():
                return self.labelled(self.answer(formula, arguments))
        except (ValueError, ArithmeticError):  # shapes that don't fit, 0 to the power of −1
            return {}

    def cases(self):
        """The ordinary cases, two of them where there are sizes, and the traps."""
        ordinary = [self.case_of(title, sizes) for title, sizes in zip(("ordinary numbers", "other sizes"), self.sizes)]
        return [*ordinary, *self.traps]

    def case_of(self, title, sizes):
        return Case(title, lambda random: self.inputs(random, **sizes), sizes, tolerance=self.tolerance)

    def draw(self, case, seed=0):
        """A case's arguments; the same ones at every call, in new arrays."""
        return case.inputs(Key(seed, path=f"exercises.{self.name}.{case.title}").generator())

    def labelled(self, value):
        """The outputs under their names in answers; the entries of a dict one by one."""
        if not isinstance(value, dict):
            value = zip(self.returns, value if len(self.returns) > 1 else (value,))
        outputs = {}
        for name, output in dict(value).items():
            if isinstance(output, dict):
                outputs |= {f'{name}["{key}"]': np.asarray(array) for key, array in output.items()}
            else:
                outputs[name] = np.asarray(output)
        return outputs

    @property
    def signature(self):
        return f"{self.name}({', '.join(self.arguments)})"
