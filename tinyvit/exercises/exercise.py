"""An exercise: its task, a solution, hints, and the mistakes that learners make.

Each is in a topic of `topics`, in two files. In the .py the solution is a function of plain NumPy under
`@exercise(inputs, domain)`, and its docstring is the task; it may call the solutions of other exercises. The .txt
beside it has a section for each solution, and for each of their parts that learners get wrong. A section begins with =
and the function's name. It is made of these parts, of which an entry begins with two spaces and goes on with more:

    Package: the names of the package's own functions

    Hints:
      a question
      the shape of the formula
      the formula

    Steps:
      name  function.variable  what it is             a value of the solution, or of a function that it calls;
                                                      `function.returned[0]` is the first that it returns
    Places:
      name: function 0 2, another 1                   which calls of a part, counted from 0, are made at this place

    Holds:
      output: what should hold, and why
        `an expression of outputs and arguments`      0 where it holds

    Mistakes:
      its name
        A hint.
        `old` → `new`                                 another text wherever this one is in the solution; ⏎ is a new line
        function: `old` → `new`                       the same in a function that it calls
        `statement`                                   comes first, as of a learner who misreads the arguments
        for h in 0.1 0.01                             the mistake once with each value in the place of {h}
"""

import ast
import inspect
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from pathlib import Path
from types import FunctionType

import numpy as np

from tinyvit.exercises.domain import ANY, TOLERANCE, Case, domain_cases, fits, random_cases, read_domain
from tinyvit.keys import Key

REGISTERED = {}  # the exercises by name, in the order in which they were made
MISTAKES = {}  # by the name of the exercise, or of a function that solutions call
EDIT = re.compile(r"(?:(\w+): )?`(.*?)`(?: → `(.*)`)?", re.DOTALL)


def number_between(random, low, high):
    """A random number, so that a constant in the learner's function is noticed."""
    return round(float(random.uniform(low, high)), 3)


def visible_eps(random):
    """A random ε, large enough to show where it is added; the 10⁻⁶ of practice would hide that."""
    return number_between(random, 0.05, 0.3)


def normal(*shapes, numbers=()):
    """Inputs of an exercise: an array of N(0, 1) for each shape, such as "BND", and then the sizes in `numbers`."""

    def inputs(random, **sizes):
        arrays = [random.standard_normal([sizes[letter] for letter in shape]) for shape in shapes]
        return *arrays, *(sizes[letter] for letter in numbers)

    return inputs


def require_fit(sizes_fit):
    """Raise ValueError for sizes that don't fit together: a random case then gets others."""
    if not sizes_fit:
        raise ValueError("the sizes don't fit together")


@dataclass(frozen=True)
class Mistake:
    """A wrong formula that learners often write; as a rule the solution with edits, (function, old text, new text)."""

    name: str
    hint: str
    formula: Callable  # the exercise's arguments -> all outputs
    edits: tuple = ()

    @property
    def explanation(self):
        return self.name, self.hint


@dataclass
class Exercise:
    """An exercise: a function that the learner writes.

    right      the solution
    inputs     (NumPy Generator, **sizes) -> the arguments
    domain     sizes, options and numbers that are tried, as `domain` says: "B N D stride=2,1,3"
    varied     names of arguments that any numbers may stand in, as "x weight"; by default the first array but dy
    equal      sizes that are equal as far as they can be, "B=3 N=3"; by default all of one letter are 4. A product with
               a matrix that should have been transposed raises an error where sizes differ; on these it gives numbers,
               by which the mistake is recognised
    forward    of a backward: the forward's solution. Inputs and domain are its own; dy has the shape of its result,
               and of its arguments the backward gets those that it names
    extra      cases that no domain describes
    tolerance  of the ordinary cases
    calls      the arguments -> those of each call, of a function that is called many times and gives a number each
               time; its answers are looked at as one array
    entry      the word for an array's entry in answers

    `task`, `arguments` and `returns` are read from the solution's docstring, the rest from the topic's text.
    """

    right: Callable
    inputs: Callable | None = None
    domain: str = ""
    varied: str | None = None
    equal: str = ""
    forward: Callable | None = None
    extra: tuple[Case, ...] = ()
    tolerance: float = TOLERANCE
    calls: Callable | None = None
    entry: str = "entry"
    package: str = ""
    hints: list = field(default_factory=list)
    steps: dict = field(default_factory=dict)   # what it is, and where, by name
    places: dict = field(default_factory=dict)  # {function: numbers of calls}, by the place's name
    invariants: list = field(default_factory=list)  # (output, sentence, expression)

    def __post_init__(self):
        self.name = self.right.__name__
        task, arguments, returns = inspect.getdoc(self.right).split("\n\n")
        self.task = " ".join(task.split())
        self.arguments, self.returns = (dict(named_entries(text)) for text in (arguments, returns))
        self.mistakes = MISTAKES.setdefault(self.name, [])
        source = self if self.forward is None else REGISTERED[self.forward.__name__]
        self.inputs, self.domain, self.equal, self.given = source.inputs, source.domain, source.equal, source.arguments
        if source is not self:
            self.varied, self.extra = source.varied, source.extra

    def answer(self, function, arguments, asked=None):
        """The function's result for a case's arguments; a list of results if it is called many times.

        asked   a list to which the arguments of each call are added before it is made
        """
        values, asked = [], [] if asked is None else asked
        for one in [arguments] if self.calls is None else self.calls(*arguments):
            asked.append(one)
            values.append(function(*one))
        return values[0] if self.calls is None else values

    def evaluate(self, formula, arguments):
        """The outputs of a formula by name; none if shapes don't fit or an arithmetic error occurs."""
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return self.label_outputs(self.answer(formula, arguments))
        except (ValueError, ArithmeticError):  # shapes that don't fit, 0 to the power of −1
            return {}

    @cached_property
    def known_cases(self):
        """The cases that are the same for every seed, up to their numbers."""
        return domain_cases(self)

    def cases(self, seed=0):
        """All cases that a function is tried on."""
        return [*self.known_cases, *random_cases(self, seed)]

    @cached_property
    def equal_cases(self):
        """Two cases whose sizes are equal, as far as they can be."""
        sizes, _ = read_domain(self.domain)
        made = {name: 4 if len(name) == 1 else values[0] for name, values in sizes.items()}
        made |= {name: int(size) for name, size in (pair.split("=") for pair in self.equal.split())}
        cases = [self.case(title, made) for title in ("equal sizes", "equal sizes again") if made]
        return [case for case in cases if fits(self, case)]

    def case(self, title, sizes, changed=(), change=None, tolerance=0.0, hint=ANY):
        """A case of these sizes; `change` makes new values of the arguments in `changed`."""

        def inputs(random):
            given = self.inputs(random, **sizes)
            return tuple(change(value) if name in changed else value for name, value in zip(self.given, given))

        return Case(title, inputs, sizes, max(tolerance, self.tolerance), hint)

    def draw(self, case, seed=0):
        """A case's arguments; the same ones at every call, in new arrays."""
        random = Key(seed, path=f"exercises.{self.name}.{case.title}").generator()
        given = case.inputs(random)
        if self.forward is None:
            return given
        with np.errstate(all="ignore"):
            dy = random.standard_normal(np.shape(self.forward(*given)))
        named = dict(zip(self.given, given))
        return dy if dy.ndim else float(dy), *(named[name] for name in [*self.arguments][1:])

    def name_outputs(self, value):
        """The value that a function returned, as outputs by name."""
        return dict(zip(self.returns, value if len(self.returns) > 1 else (value,)))

    def label_outputs(self, value):
        """The outputs as arrays under their names in answers."""
        return {name: np.asarray(output) for name, output in flatten(self.name_outputs(value)).items()}

    @property
    def signature(self):
        return f"{self.name}({', '.join(self.arguments)})"


def flatten(outputs):
    """Outputs under their names in answers: the entries of a dict one by one."""
    flat = {}
    for name, output in outputs.items():
        entries = {f'{name}["{key}"]': entry for key, entry in output.items()} if isinstance(output, dict) else {}
        flat |= entries or {name: output}
    return flat


def exercise(*inputs_and_sizes, **options):
    """Decorates the solution of an exercise, with the fields of `Exercise`."""

    def register(function):
        REGISTERED[function.__name__] = Exercise(function, *inputs_and_sizes, **options)
        return function

    return register


# -- texts ----------------------------------------------------------------------------------------------------------


def entries(text):
    """The entries of a part of a text, each a list of lines: one begins with two spaces, and goes on with more."""
    found = []
    for line in text.split("\n"):
        if re.match("  [^ ]", line):
            found.append([line.strip()])
        elif line.startswith("   "):
            found[-1].append(line.strip())
    return found


def named_entries(text):
    """(name, words) of each entry that begins with a name."""
    return [" ".join(lines).split(None, 1) for lines in entries(text)]


def read_texts(module):
    """Read the text of a topic, whose module this is, and return its exercises."""
    sections = named_sections(Path(module.__file__).with_suffix(".txt").read_text(encoding="utf-8"))
    for name, section in sections:
        read_section(vars(module)[name], section)
    return [REGISTERED[name] for name, _ in sections if name in REGISTERED]


def named_sections(text):
    """[(name, what stands below it)] of the sections that begin with = and a name."""
    _, *words = re.split(r"^= (.+)\n", text, flags=re.MULTILINE)
    return list(zip(words[::2], words[1::2]))


def read_section(function, text):
    """Add hints, steps and mistakes to an exercise, or mistakes to a function that solutions call."""
    name = function.__name__
    known = MISTAKES.setdefault(name, [])
    _, *words = re.split(r"^(Package|Hints|Steps|Places|Holds|Mistakes):", text, flags=re.MULTILINE)
    parts = dict(zip(words[::2], words[1::2]))
    for title, *lines in entries(parts.pop("Mistakes", "")):
        lines = "\n".join(lines).replace("→\n", "→ ").split("\n")
        values = lines.pop().split()[3:] if lines[-1].startswith("for h in ") else [""]
        edits = [line for line in lines if EDIT.fullmatch(line)]
        hint = " ".join(line for line in lines if line not in edits)
        for h in values:
            found = (EDIT.fullmatch(line.replace("{h}", h).replace("⏎", "\n")).groups() for line in edits)
            made = tuple((part or name, *texts) for part, *texts in found)
            known.append(Mistake(title, hint, lambda *given, made=made: edit_solution(function, made)(*given), made))
    if name in REGISTERED:
        own = REGISTERED[name]
        own.package = " ".join(parts.get("Package", "").split())
        own.hints = [" ".join(lines) for lines in entries(parts.get("Hints", ""))]
        for step, words in named_entries(parts.get("Steps", "")):
            where, said = words.split(None, 1)
            own.steps[step] = said, where
        for (line,) in entries(parts.get("Places", "")):
            place, _, calls = line.partition(": ")
            made = (one.split() for one in calls.split(", "))
            own.places[place] = {part: set(map(int, numbers)) for part, *numbers in made}
        for *lines, expression in entries(parts.get("Holds", "")):
            output, _, sentence = " ".join(lines).partition(": ")
            own.invariants.append((output, sentence, expression.strip("`")))


# -- solutions as texts ---------------------------------------------------------------------------------------------


@cache
def sources(function):
    """{name: source without docstring} of a solution and of those that it calls; those come first."""
    text = inspect.getsource(function)
    (node,) = ast.parse(text).body
    lines = text.rstrip().split("\n")
    if ast.get_docstring(node):
        del lines[node.body[0].lineno - 1 : node.body[0].end_lineno]
    found = {}
    for name in global_names(function.__code__):
        if isinstance(function.__globals__.get(name), FunctionType):
            found |= sources(function.__globals__[name])
    return found | {function.__name__: "\n".join([*lines[node.lineno - 1 :], ""])}


def global_names(code):
    """The global names that a function uses, also in the generators inside it."""
    inner = [name for part in code.co_consts if hasattr(part, "co_names") for name in global_names(part)]
    return list(dict.fromkeys([*code.co_names, *inner]))


@lru_cache(1024)
def compile_source(text):
    return compile(text, "<solution>", "exec")


def namespace(texts):
    """The functions of these sources, which see one another."""
    space = {"np": np}
    for text in texts.values():
        exec(compile_source(text), space)
    return space


@lru_cache(256)
def edit_solution(function, edits):
    """A solution with edits, ready to be called; ValueError for a text that isn't in it."""
    return namespace(edit_sources(function, edits))[function.__name__]


def edit_sources(function, edits):
    """The sources of a solution with edits; ValueError for a text that isn't in it."""
    texts = dict(sources(function))
    for part, old, new in edits:
        if new is None:
            texts[part] = texts[part].replace("\n", f"\n    {old}\n", 1)
        elif old in texts[part]:
            texts[part] = texts[part].replace(old, new)
        else:
            raise ValueError(f"the solution {part} has no {old!r}")
    return texts
