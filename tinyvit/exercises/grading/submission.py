"""Reads a submission, and takes from it what each exercise needs.

A notebook's or a script's statements at top level are kept if the function of an exercise needs them: its definition,
that of each name that it uses, and so on. What only shows or checks something isn't run. The others are blanked, so
that line numbers stay those of the file.
"""

import ast
import dis
import json
import linecache
import re
import types
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from tinyvit.exercises.grading import rules
from tinyvit.text import did_you_mean

USES_EXAMPLE = "worked_example_backward"
MAGIC = re.compile(r"^\s*[%!?]|^.*\?\s*$")

STORES, LOADS = {"STORE_NAME", "STORE_GLOBAL"}, {"LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS", "DELETE_NAME"}


class Statement(NamedTuple):
    """A statement at top level, with the names there that it binds and uses."""

    node: ast.stmt
    bound: set
    used: set


class Answer(NamedTuple):
    """A submission's code for one exercise.

    source       the code that is run
    expression   the one in it that gives the function
    line         of the function
    forbidden    what the code does that grading doesn't allow, and the line; or None
    is_empty     whether the function does nothing
    """

    source: str
    expression: str
    line: int
    forbidden: tuple | None
    is_empty: bool


class Submission:
    """A submission that was read.

    answers    by the name of the exercise
    unread     what isn't Python, or no notebook, with the reason
    ungraded   what looks like a solution and isn't graded, with the reason
    """

    def __init__(self, path, exercises):
        self.path = path
        self.unread, self.statements = [], []
        self.lines, self.places = [], []
        calls = {}
        try:
            pieces = read_pieces(Path(path))
        except (SyntaxError, OSError) as error:
            pieces, self.unread = [], [str(error)]
        for title, source in pieces:
            start, lines = len(self.lines), source.split("\n")
            self.lines += lines
            self.places += [f"{title and f'{title}, '}line {number}" for number in range(1, len(lines) + 1)]
            try:
                statements = ast.parse(source).body
                compile(source, "<submission>", "exec", dont_inherit=True)
            except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
                line = getattr(error, "lineno", None)
                place = self.places[start + line - 1] if line and line <= len(lines) else title or path
                self.unread.append(f"{place} isn't Python: {getattr(error, 'msg', error)}")
                continue
            for node in statements:
                ast.increment_lineno(node, start)
                self.statements.append(Statement(node, bound_names(node), used_names(node)))
                calls |= checked_exercises(node)
        functions = functions_of(self.statements)
        self.answers = {}
        for name in exercises:
            own = [candidate for candidate in (name, f"my_{name}") if candidate in functions]
            expression = calls.get(name, ast.parse(own[-1], mode="eval").body if own else None)
            if expression is not None:
                self.answers[name] = self.answer(name, expression)
        self.ungraded = [*self.look_alikes(functions, exercises), *unknown_names(calls, exercises)]

    def look_alikes(self, functions, exercises):
        """Lines about functions called nearly as an exercise that is missing, and names that may be no function."""
        lacking = [name for name in exercises if name not in self.answers]
        bound = [name for one in self.statements for name in one.bound if name]
        for name in sorted({*bound}):
            own = name.removeprefix("my_")
            if own in lacking and name not in functions:
                yield f"{name}, of which it isn't known whether it is a function; write check({own!r}, {name})"
            elif own not in exercises and name in functions:
                for close in get_close_matches(own, lacking, 1, 0.85):
                    yield f"{name}; did you mean {close}?"

    def answer(self, name, expression):
        """The Answer for an exercise whose function is an expression."""
        kept = needed_statements(self.statements, expression)
        keep = {line for one in kept for line in range(first_line(one.node), one.node.end_lineno + 1)}
        source = "\n".join(text if line in keep else "" for line, text in enumerate(self.lines, 1))
        named = isinstance(expression, ast.Name)
        own = [one.node.lineno for one in kept if named and expression.id in one.bound]
        code, line = ast.unparse(expression), own[-1] if own else 0
        is_empty = any(one.node.lineno == line and does_nothing(one.node) for one in kept)
        given = (rules.WORKED_EXAMPLE,) if name == USES_EXAMPLE else ()
        forbidden = find_forbidden(source, code, name.endswith("_backward"), given)
        return Answer(source, code, line, forbidden, is_empty)

    def load(self, name):
        """The function for an exercise, for which what it needs runs in this process; ValueError if that fails."""
        if name not in self.answers:
            why = "; ".join(self.unread + self.ungraded)
            raise ValueError(f"{self.path} has no function {name} or my_{name}{why and f': {why}'}")
        answer = self.answers[name]
        file = str(self.path)
        names = {"__name__": "solution"}
        lines = answer.source.splitlines(True)
        linecache.cache[file] = len(answer.source), None, lines, file  # for its answers
        try:
            exec(compile(answer.source, file, "exec"), names)
            return eval(answer.expression, names)
        except Exception as error:
            raise ValueError(f"{file} fails when it is run: {type(error).__name__}: {error}") from error

    def place(self, line):
        """A line of the code as `line 7`, or `cell 3, line 2`."""
        return self.places[line - 1] if 0 < line <= len(self.places) else ""


def read_pieces(path):
    """[(title, code)] of a script or of a notebook's cells.

    Raises ValueError if it is neither by its name, SyntaxError by what is in it, and OSError if it can't be read.
    """
    if path.suffix not in (".py", ".ipynb") or not (path.exists() or path.is_symlink()):
        raise ValueError(f"expected an existing script or notebook, FILE.py or FILE.ipynb, got {path}")
    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix == ".py":
            return [("", text.replace("\r\n", "\n"))]
        cells = enumerate(json.loads(text)["cells"], 1)
        code = [(number, "".join(cell["source"])) for number, cell in cells if cell["cell_type"] == "code"]
        return [(f"cell {number}", strip_magics(source)) for number, source in code]
    except UnicodeDecodeError:
        raise SyntaxError(f"{path} is no text in UTF-8") from None
    except (json.JSONDecodeError, KeyError, TypeError, RecursionError):
        raise SyntaxError(f"{path} is no notebook: expected JSON with cells") from None


def strip_magics(source):
    """A cell without the lines that only IPython understands."""
    if source.lstrip().startswith("%%"):
        return "\n" * source.count("\n")
    try:
        ast.parse(source)
    except (SyntaxError, ValueError):
        return "\n".join("" if MAGIC.match(line) else line for line in source.split("\n"))
    return source


def checked_exercises(statement):
    """The exercises that a statement checks: {name: the expression of the function}."""
    calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call) and len(node.args) >= 2]
    checks = [node.args for node in calls if name_of(node.func) == "check"]
    return {name.value: function for name, function, *_ in checks if isinstance(name, ast.Constant)}


def unknown_names(calls, exercises):
    """Lines about names that are checked and that no exercise has."""
    return [f"{name!r}, no exercise; {did_you_mean(name, exercises, 4)}" for name in calls if name not in exercises]


def does_nothing(node):
    """Whether a function is a text, `pass`, `...` or `raise NotImplementedError` alone."""
    return is_definition(node) and all(
        isinstance(one, ast.Pass)
        or (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
        or (isinstance(one, ast.Raise) and "NotImplementedError" in ast.unparse(one))
        for one in node.body
    )


def name_of(node):
    """`f` of the expressions f and module.f; None of any other."""
    return getattr(node, "id", getattr(node, "attr", None))


def instructions(code):
    """(name of the operation, its argument) of a code object and of those in it."""
    for one in dis.get_instructions(code):
        yield one.opname, one.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from instructions(constant)


def compile_statement(statement):
    return compile(ast.Module([statement], []), "<submission>", "exec", dont_inherit=True)


def bound_names(statement):
    """The names that a statement at top level binds or changes."""
    names = {name for operation, name in instructions(compile_statement(statement)) if operation in STORES}
    for node in [] if is_definition(statement) else ast.walk(statement):
        if isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            names.add(base_of(node))
    return names


def base_of(node):
    """`a` of the expression a.b[c].d; None if it begins with something other than a name."""
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    return getattr(node, "id", None)


def used_names(statement):
    """The names at top level that a statement, or a function in it, uses; no local variables, and no parameters."""
    return {name for operation, name in instructions(compile_statement(statement)) if operation in LOADS}


def functions_of(statements):
    """The names of functions: of a `def`, a lambda, another name of a function, `partial`'s and a class's instances.

    What any other call returns isn't known before it runs, and a number may be called `linear`, too.
    """
    functions, makers = set(), {"partial"}
    for one in statements:
        value = getattr(one.node, "value", None)
        if is_definition(one.node):
            functions.add(one.node.name)
            makers |= {one.node.name} if isinstance(one.node, ast.ClassDef) else set()
        elif isinstance(value, ast.Lambda) or getattr(value, "id", None) in functions or (
            name_of(getattr(value, "func", None)) in makers
        ):
            functions |= one.bound
    return functions


def is_definition(node):
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))


def first_line(node):
    return min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])


def needed_statements(statements, expression):
    """The statements that an expression needs, in their order."""
    names, kept = used_names(ast.Expr(expression, lineno=1, col_offset=0)), set()
    while True:
        more = [number for number, one in enumerate(statements)
                if number not in kept and (one.bound & names or is_always_kept(one.node))]  # fmt: skip
        if not more:
            return [statements[number] for number in sorted(kept)]
        for number in more:
            kept.add(number)
            names |= statements[number].used


def is_always_kept(node):
    """Whether a statement is kept whatever is used: `from numpy import *`, and a script's `from __future__`."""
    if not isinstance(node, ast.ImportFrom):
        return False
    first = node.module == "__future__" and node.lineno == 1
    return first or (node.names[0].name == "*" and rules.may_be_imported(node.module))


def find_forbidden(source, expression, backward, given):
    """(what the code does that grading doesn't allow, its line), the first such thing; None.

    backward   whether complex numbers are refused
    given      modules that are handed out for this exercise
    """
    tree = ast.parse(source)
    tree.body.append(ast.Expr(ast.parse(expression, mode="eval").body))
    imports = [one for one in ast.walk(tree) if isinstance(one, (ast.Import, ast.ImportFrom))]
    modules = {alias.asname or alias.name.partition(".")[0] for one in imports for alias in one.names}
    for node in ast.walk(tree):
        found = forbidden_import(node, given) or forbidden_name(node, modules) or (backward and complex_use(node)) or ""
        if found:
            return found, getattr(node, "lineno", 0)
    return None


def forbidden_import(node, given):
    """A module that may not be imported."""
    names = []
    if isinstance(node, ast.Import):
        names = [(alias.name,) for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        names = [(module, f"{module}.{alias.name}") for alias in node.names]
    for choices in names:
        if not any(rules.may_be_imported(choice, given) for choice in choices):
            return f"imports {choices[0]}; a graded solution may import {rules.ALLOWED_MODULES}"
        if not all(rules.may_be_read(alias.name) for alias in node.names):
            return f"imports {choices[-1]}"
        if choices[0] == "scipy.special" and choices[1:] and choices[1].rpartition(".")[2] not in rules.SCIPY_FUNCTIONS:
            return f"imports {choices[1]}; of scipy.special it may use {' and '.join(rules.SCIPY_FUNCTIONS)}"
    return ""


def forbidden_name(node, modules):
    """A name or an attribute that may not be used."""
    if isinstance(node, ast.Name) and node.id in rules.BUILTINS:
        return f"uses {node.id}"
    if isinstance(node, ast.Attribute) and not rules.may_be_read(node.attr):
        return f"uses .{node.attr}"
    if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load) and base_of(node) in modules:
        return f"changes the module {base_of(node)}"
    return ""


def complex_use(node):
    """A complex number in the code of a gradient."""
    match node:
        case ast.BinOp(ast.UnaryOp(operand=ast.Constant()), ast.Pow(), ast.Constant(float())):  # as (-1) ** 0.5
            found = True
        case ast.Constant(complex()):
            found = True
        case ast.Constant(str() as text):
            found = text in rules.COMPLEX_TEXTS
        case ast.Import(names=[ast.alias(name=name), *_]):
            found = name in rules.COMPLEX_NAMES
        case _:
            found = name_of(node) in rules.COMPLEX_NAMES
    return rules.NO_COMPLEX if found else ""
