"""Kinds of mistakes that can be made in any exercise: `kinds.txt`, as changes of a solution wherever they fit.

A mistake is an edit of the solution, so a kind applies wherever its pattern stands in the solution, or in a function
that it calls. The answer shows the step as the learner seems to have it, and not the right one.
"""

import ast
import re
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from functools import cache, partial
from itertools import combinations, islice, product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tinyvit.exercises.catalogue import find
from tinyvit.exercises.exercise import named_sections, namespace, sources

MAX_CHANGES = 4000  # changes of a solution that are tried
MAX_STEP = 80  # characters of a step in an answer
BEFORE = {"argument", "option", "samples", "two", "dy"}  # places before anything is computed
PLACES = BEFORE | {"line", "variable", "axes", "index", "key", "transpose"}
OWN = "line", "variable"  # places in the exercise's own function alone
NO_VALUES = ast.Tuple, ast.Starred, ast.Slice
REDUCTIONS = {"sum", "mean", "max", "min", "var", "std"}
AXES = [str(axes) for count in (1, 2, 3) for axes in combinations(range(4), count)] + ["-1", "-2", "None"]


@cache
def rules():
    """[(name, hint, pattern, what stands in its place)]; both are trees, or the pattern is the word of a place."""
    found = []
    for name, text in named_sections(Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")):
        hint = " ".join(re.findall(r"^  (\S.*)$", text, re.MULTILINE))
        for pattern, new in re.findall(r"^    `(.*)` → `(.*)`$", text, re.MULTILINE):
            pattern = pattern if pattern in PLACES else tree_of(pattern)
            found.append((name, hint, pattern, new if pattern == "transpose" else tree_of(new)))
    return found


def tree_of(text):
    """The tree of an expression or a statement."""
    (tree,) = ast.parse(text).body
    return tree.value if isinstance(tree, ast.Expr) else tree


def match_pattern(pattern, node, names):
    """Whether a tree, or a part of one, has this pattern; what its letters stand for goes into `names`."""
    if isinstance(pattern, ast.Name) and len(pattern.id) == 1:
        is_value = isinstance(node, ast.expr) and not isinstance(node, ast.Slice)
        return is_value and ast.dump(names.setdefault(pattern.id, node)) == ast.dump(node)
    if isinstance(pattern, ast.AST) and type(pattern) is type(node):
        parts = ((getattr(pattern, name), getattr(node, name)) for name in pattern._fields if name != "ctx")
        return all(match_pattern(*both, names) for both in parts)
    if isinstance(pattern, list) and isinstance(node, list) and len(pattern) == len(node):
        return all(match_pattern(*both, names) for both in zip(pattern, node))
    return pattern == node


def build(tree, names):
    """A tree with others in the place of its letters."""
    if isinstance(tree, ast.Name) and tree.id in names:
        return names[tree.id]
    if isinstance(tree, ast.AST):
        parts = {name: build(getattr(tree, name), names) for name in tree._fields}
        return type(tree)(**parts, lineno=1, col_offset=0, end_lineno=1, end_col_offset=0)
    return [build(one, names) for one in tree] if isinstance(tree, list) else tree


def build_all(tree, names, choices):
    """The trees of a template: one for each choice for its capital letter or n."""
    used = {one.id for one in ast.walk(tree) if isinstance(one, ast.Name)}.intersection(choices)
    options = (zip(used, chosen) for chosen in product(*(choices[letter] for letter in used)))
    return [build(tree, names | dict(option)) for option in options]


class Place(NamedTuple):
    """A tree in a function: a function that puts another in its place, the statement it is in, the words of its place,
    and its text, by which those that are written alike are found."""

    node: ast.AST
    put: Callable
    statement: ast.stmt
    words: frozenset
    text: str


def places(node, statement=None, words=frozenset()):
    """The places of all expressions and all += below a node."""
    for field, child in ast.iter_fields(node):
        for i, one in enumerate(child if isinstance(child, list) else [child]):
            if not isinstance(one, ast.AST) or isinstance(one, (ast.arguments, ast.JoinedStr)):
                continue
            within = one if isinstance(one, ast.stmt) else statement
            own, stored = words_of(node, field, one), isinstance(getattr(one, "ctx", None), ast.Store)
            is_value = isinstance(one, (ast.expr, ast.AugAssign)) and not isinstance(one, NO_VALUES)
            if not stored and (is_value or "axes" in own):
                put = partial(child.__setitem__, i) if isinstance(child, list) else partial(setattr, node, field)
                yield Place(one, put, within, words | own, ast.dump(one))
            yield from places(one, within, own & {"index"} if isinstance(one, (ast.Slice, ast.BinOp)) else frozenset())


def words_of(node, field, one):
    """The words of the place that a tree has in its parent."""
    called = getattr(getattr(node, "func", None), "attr", getattr(getattr(node, "func", None), "id", None))
    found = {
        "axes": called in REDUCTIONS and one in node.args,
        "line": isinstance(node, (ast.Assign, ast.Return, ast.Tuple)) and isinstance(one, ast.expr),
        "variable": isinstance(one, ast.Name) and field != "func",
        "index": field in ("slice", "lower", "upper") or called in ("range", "arange"),
        "key": isinstance(one, ast.Constant) and isinstance(one.value, str),
        "transpose": isinstance(one, ast.Call) and getattr(one.func, "attr", "") == "transpose",
    }
    return frozenset(word for word, holds in found.items() if holds)


def variables(function):
    """The names of a function's arguments and variables."""
    stored = {one.id for one in ast.walk(function) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    return list(dict.fromkeys([*(argument.arg for argument in function.args.args), *sorted(stored)]))


def transposes(call, new):
    """The trees in the place of a transpose: nothing, or two axes exchanged, or the order of axes that undoes it."""
    if new in ("none", "reshape"):
        value = call.func.value
        shaped = build(tree_of("a.reshape(b.shape)"), {"a": value, "b": call})
        return [value if new == "none" else shaped]
    axes, orders = call.args, []
    for i, j in product(range(len(axes)), repeat=2):
        rest = axes[:i] + axes[i + 1 :]
        moved, swapped = [*rest[:j], axes[i], *rest[j:]], list(axes)
        swapped[i], swapped[j] = axes[j], axes[i]
        orders += [moved, swapped]
    if all(isinstance(axis, ast.Constant) for axis in axes):
        orders.append([ast.Constant(int(axis)) for axis in np.argsort([axis.value for axis in axes])])
    return [build(ast.Call(call.func, order, []), {}) for order in orders if order != axes]


def changes_of(name):
    """(name of the kind, hint, a function that gives the step, code of a changed function) of a solution."""
    exercise = find(name)
    functions = [ast.parse(text).body[0] for text in sources(exercise.right).values()]
    for function in sorted(functions, key=lambda one: one.name != name):
        own, found = function.name == name, list(places(function))
        given = arguments_of(exercise) if own else {}
        choices, before = choices_of(exercise, function, found, given), statements_before(given)
        for kind, hint, pattern, new in rules():
            if pattern in BEFORE:
                changes = changes_before(function, before[pattern], new, choices)
            elif getattr(new, "id", "") == "exchanged":
                changes = exchanges(function, found, choices["n"]) if own else ()
            else:
                hits = hits_of(found, pattern, new, choices) if own or pattern not in OWN else ()
                changes = changes_in_places(function, hits, alone=pattern in ("variable", "index", "key"))
            for step, code in changes:
                yield kind, hint, step, code


def choices_of(exercise, function, found, given):
    """{a capital letter, n, o, p or forward: what it may stand for}, as trees."""
    known = [ast.Name(one, ast.Load()) for one in variables(function)]
    sizes = [
        f"{one}.shape[{axis}]" for one, value in given.items() if is_array(value) for axis in range(value.ndim)
    ]
    products = [" * ".join(chosen) for count in (1, 2) for chosen in combinations(sizes, count)]
    keys = {place.node.value: place.node for place in found if "key" in place.words}
    choices = {
        "n": known,
        "o": [one for one in known if isinstance(given.get(one.id), (int, float))],
        "p": [one for one in known if one.id in given],
        "A": [*map(tree_of, AXES)],
        "K": [*keys.values()],
        "N": [*map(tree_of, products[:30])],
    }
    if exercise.forward and {*exercise.given} <= {*exercise.arguments}:
        choices["forward"] = [tree_of(f"{exercise.forward.__name__}({', '.join(exercise.given)})")]
    return {letter: [build(one, {}) for one in trees] for letter, trees in choices.items()}


def changes_before(function, lists, new, choices):
    """(a function that gives the step, code) of new values of arguments, set before anything is computed.

    lists   of the arguments that are set together
    """
    for names in lists:
        letters = [{"a": tree_of(name), "b": tree_of(names[i - 1])} for i, name in enumerate(names)]
        for values in product(*(build_all(new, one, choices) for one in letters)):
            stored = ast.Tuple([ast.Name(name, ast.Store()) for name in names], ast.Store())
            statement = build(ast.Assign([stored], ast.Tuple([*values], ast.Load()), None), {})
            function.body.insert(0, statement)
            yield partial(assignment_text, names, values), compile_function(function)
            del function.body[0]


def assignment_text(names, values):
    return f"{', '.join(names)} = {', '.join(map(ast.unparse, values))}"


def exchanges(function, found, known):
    """(a function that gives the step, code) with two variables exchanged wherever they are read."""
    for one, other in combinations(known, 2):
        both = {one.id: other, other.id: one}
        hits = [place for place in found if "variable" in place.words and place.node.id in both]
        with changed([(place, [both[place.node.id]]) for place in hits], 0):
            code = compile_function(function)
        yield partial("{} and {}".format, one.id, other.id), code


def hits_of(found, pattern, new, choices):
    """[(place, what may stand there)] of the places that a pattern fits."""
    hits = []
    for place in found:
        names = {"a": place.node} if pattern in place.words else {}
        fits = names if isinstance(pattern, str) else match_pattern(pattern, place.node, names)
        is_number = isinstance(pattern, ast.UnaryOp) and isinstance(names.get("a"), ast.Constant)  # −1
        if fits and not is_number:
            transpose = pattern == "transpose"
            hits.append((place, transposes(place.node, new) if transpose else build_all(new, names, choices)))
    return hits


def changes_in_places(function, hits, alone):
    """(a function that gives the step, code) of each group of places that are changed together."""
    for group in groups_of(hits, alone):
        for i in range(min(len(made) for _, made in group)):
            with changed(group, i):
                code = compile_function(function)
            yield partial(step_text, group, i), code


def groups_of(hits, alone):
    """The places that are changed together: each by itself, those that are written alike, in a line and everywhere, and
    unless `alone` all in a line and all."""
    found = {(i,): [hit] for i, hit in enumerate(hits)}
    for by_line, by_text in ((True, True), (False, True), *(() if alone else ((True, False), (False, False)))):
        sorted_ = {}
        for i, (place, _) in enumerate(hits):
            sorted_.setdefault((by_line and id(place.statement), by_text and place.text), []).append(i)
        found |= {tuple(numbers): [hits[i] for i in numbers] for numbers in sorted_.values()}
    return found.values()


@contextmanager
def changed(group, number):
    """Changes a function, and changes it back."""
    for place, made in group:
        place.put(made[number])
    yield
    for place, _ in reversed(group):
        place.put(place.node)


def step_text(group, number):
    """The statement that was changed, or the changed expression, if that is shorter than an answer's line."""
    place, made = group[0]
    with changed(group, number):
        statement = made[number] if place.node is place.statement else place.statement
        texts = ast.unparse(statement).removeprefix("return "), ast.unparse(made[number])
    return next((text for text in texts if len(text) <= MAX_STEP and "\n" not in text), "")


def arguments_of(exercise):
    """{name: value} of the arguments of the first case, of one call."""
    given = exercise.draw(exercise.known_cases[0])
    return dict(zip(exercise.arguments, given if exercise.calls is None else exercise.calls(*given)[0]))


def is_array(value):
    return isinstance(value, np.ndarray)


def statements_before(given):
    """{place: [names of the arguments that a statement there sets]}"""
    arrays = [name for name, value in given.items() if is_array(value)]
    numbers = [name for name, value in given.items() if isinstance(value, (int, float))]
    return {
        "argument": [[name] for name in arrays],
        "option": [[name] for name in numbers],
        "samples": [[name for name in arrays if given[name].shape[:1] == given[arrays[0]].shape[:1]]],
        "two": [*combinations(arrays, 2), *combinations(numbers, 2)],
        "dy": [["dy"]] * ("dy" in arrays),
    }


def compile_function(function):
    """The code that defines a function; None if it makes no sense."""
    with warnings.catch_warnings():  # of a number in the place of an array
        warnings.simplefilter("ignore", SyntaxWarning)
        try:
            return compile(ast.Module([function], []), "<solution>", "exec")
        except (SyntaxError, ValueError, TypeError):
            return None


MADE = {}  # by the name of an exercise: the changes that were made so far, and those still to be made


def kinds_of_mistakes(name):
    """The kinds of mistakes that fit an exercise's solution: (its name, hint and function for the step), formula."""
    made, more = MADE.setdefault(name, ([], islice(changes_of(name), MAX_CHANGES)))
    yield from list(made)
    for *kind, code in more:
        if code is not None:
            made.append(((tuple(kind),), partial(evaluate_change, name, code)))
            yield made[-1]


def with_step(name, hint, step):
    """(name, hint) of a kind of mistake; the hint begins with the step."""
    text = step()
    return name, f"It would come out like this with the step `{text}`. {hint}" if text else hint


@cache
def solution_space(name):
    """The functions of an exercise's solution, and of its forward's."""
    exercise = find(name)
    return namespace((sources(exercise.forward) if exercise.forward else {}) | sources(exercise.right))


def evaluate_change(name, code, *arguments):
    """The value of the solution with one function changed; ValueError if that makes no sense."""
    space = solution_space(name)
    (function,) = code.co_names  # that the code defines
    right = space[function]
    exec(code, space)
    try:
        return space[name](*arguments)
    except Exception as error:  # a change that makes no sense may raise anything
        raise ValueError from error
    finally:
        space[function] = right
