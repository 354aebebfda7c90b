"""Every exercise cell that asks for numbers answers in words, untouched, half filled in, or with anything in it."""

import ast
import contextlib
import io
import os
import symtable
from functools import cache
from pathlib import Path

import jupytext
import matplotlib
import matplotlib.pyplot as plt
import pytest

from tinyvit import exercises

pytestmark = pytest.mark.end_to_end

FOLDER = Path(__file__).parents[1] / "notebooks"
SOURCES = sorted(FOLDER.glob("[0-9][0-9]_*.py"))
LEFT_OPEN = ("None", "7", "-0.5", "'a word'", "(1, 2)", "(1, None, 3)", "{}", "float('nan')", "len")


@cache
def cells_of(source):
    """(code of each cell, the numbers of those that are exercises)."""
    code, numbers, behind = [], [], False
    for cell in jupytext.read(source).cells:
        if cell.cell_type == "markdown":
            behind |= "## Exercises" in cell.source
            continue
        if behind and "exercises.check" in cell.source:
            numbers.append(len(code))
        code.append(cell.source)
    return code, numbers


def names(code):
    """(names that a cell binds, names that it needs from elsewhere)."""
    table = symtable.symtable(code, "cell", "exec")
    bound = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported() or s.is_namespace()}
    needed, inner = {s.get_name() for s in table.get_symbols() if s.is_referenced()}, [*table.get_children()]
    while inner:
        scope = inner.pop()
        needed |= {s.get_name() for s in scope.get_symbols() if s.is_global()}
        inner += scope.get_children()
    return bound, needed


def before(code, number):
    """The namespace after running the cells that an exercise needs."""
    bound, needed = names(code[number])
    chosen, wanted = [], needed - bound  # an exercise assigns its own names before it reads them
    for cell in reversed(code[:number]):
        bound, needed = names(cell)
        if bound & wanted:
            chosen.insert(0, cell)
            wanted = wanted - bound | needed
    space = {}
    for cell in chosen:
        exec(compile(cell, "cell", "exec"), space)
    plt.close("all")
    return space


def blanks(cell):
    """The names that a learner is to put a number into."""
    for line in ast.parse(cell).body:
        if isinstance(line, ast.Assign) and {type(leaf) for leaf in ast.walk(line.value)} <= {
            ast.Constant, ast.Tuple, ast.Load
        }:  # fmt: skip
            targets = line.targets[0].elts if isinstance(line.targets[0], ast.Tuple) else line.targets
            values = line.value.elts if isinstance(line.value, ast.Tuple) else [line.value]
            if all(isinstance(value, ast.Constant) and value.value is None for value in values):
                yield from (target.id for target in targets)


def filled(cell, answers):
    """A cell with other numbers (source text by name) in its blanks."""
    lines = []
    for line in ast.parse(cell).body:
        lines.append(ast.unparse(line))
        lines += [f"{name} = {text}" for name, text in answers.items() if name in names(lines[-1])[0]]
    return "\n".join(lines)


def answer(cell, space):
    """The output of a cell; the test fails if it raises."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(cell, "cell", "exec"), dict(space))
    return printed.getvalue()


EXERCISES = [(source, number) for source in SOURCES for number in cells_of(source)[1]]
NUMBERS = [(source, number) for source, number in EXERCISES if "def " not in cells_of(source)[0][number]]


@pytest.fixture(scope="module", autouse=True)
def in_the_folder():
    here, backend = Path.cwd(), matplotlib.get_backend()
    matplotlib.use("agg")
    os.chdir(FOLDER)
    with matplotlib.rc_context():  # cells set their own
        yield
    os.chdir(here)
    matplotlib.use(backend)


@pytest.fixture
def exercise(request):
    """(the cell of an exercise, its namespace before it runs)."""
    source, number = request.param
    code, _ = cells_of(source)
    with contextlib.redirect_stdout(io.StringIO()):
        return code[number], before(code, number)


def test_every_notebook_has_exercises_that_are_read_by_the_package():
    assert len(SOURCES) >= 10 and all(len(cells_of(source)[1]) >= 2 for source in SOURCES)


@pytest.mark.parametrize("exercise", NUMBERS, ids=[f"{path.stem}-{n}" for path, n in NUMBERS], indirect=True)
def test_an_exercise_answers_whatever_is_filled_in_or_nothing(exercise, monkeypatch):
    cell, space = exercise
    to_fill, right = list(blanks(cell)), {}
    assert answer(cell, space).count("in place of None") == len(to_fill) > 0
    for name in to_fill:
        for text in LEFT_OPEN:
            said = answer(filled(cell, {name: text}), space)
            assert said.count(": ") >= len(to_fill) and f"{name}: right" not in said
    said = answer(filled(cell, dict.fromkeys(to_fill, "7")), space)
    assert "in place of None" not in said

    def note(name, given, expected, *arguments):
        right[name] = f"{getattr(expected, 'tolist', lambda: expected)()!r}"
        return False

    with monkeypatch.context() as noting:
        noting.setattr(exercises, "check_number", note)
        answer(cell, space)
    assert list(right) == to_fill
    said = answer(filled(cell, right), space)
    assert [f"{name}: right." in said for name in to_fill] == [True] * len(to_fill)
