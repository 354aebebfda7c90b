"""Finds a slip that has no name: the plain solution is changed in one place, until it gives the learner's numbers.

One place is a name, a number, an operator, a function, a transpose, an axis, or a term that is added or left out. The
answer shows the step as the learner seems to have it, and not the right one.
"""

import ast
import re
import warnings
from copy import deepcopy
from functools import cache, partial
from itertools import islice, product

import numpy as np

from tinyvit.exercises.catalogue import find
from tinyvit.exercises.exercise import namespace, sources
from tinyvit.exercises.general_mistakes import agree

MAX_CHANGES = 2000  # changes that are tried: about two seconds for a whole ViT
# Expressions, and what may stand in their place by mistake; a, b and c are any expressions.
RULES = """
a + b → a - b; a * b; a; b
a - b → a + b; a; b; b - a
a * b → a / b; a + b; a; b
a * a → abs(a)
a / b → a * b; a; b
a // b → a; b
a ** b → a; b
a @ b → a * b; a; b; a @ b.mT; b @ a
-a → a
a.mT → a
a.T → a
a.mean → a.sum; a.max
a.sum → a.mean; a.max
a.max → a.mean; a.sum
np.exp → np.exp2; np.expm1; np.square
np.log → np.log2; np.log10; np.log1p
a[:, 0] → a.mean(1); a.sum(1); a.max(1)
"""
BRACKETS = (  # in another place, or none
    "a {0} (b {1} c) → (a {0} b) {1} c; b {1} (a {0} c)",
    "(a {0} b) {1} c → a {0} (b {1} c); (a {1} c) {0} b",
)
PARTS = "a[:1]", "a[-1:]", "a[::-1]", "a[:, ::-1]"  # of an array: the first, the last, the other way round
TERMS = "a + n", "a - n", "a * n", "a / n"  # with a variable n too many
REPLACEMENTS = "0", "0 - a", "0 + a", "1", "1 - a", "1 + a", "1 / a", "a ** 2"
MISREADINGS = "a = n", "a = -a", "a = 0 * a", "a = abs(a)", "a = a - a.mean(-1, keepdims=True)"


def fill(template, **names):
    """The text of a template, with expressions in the place of its letters."""
    return re.sub(r"\b[abcn]\b", lambda letter: f"({ast.unparse(names[letter[0]])})", template)


def expressions(templates, **names):
    """Templates as expressions, with others in the place of their letters."""
    return [ast.parse(fill(template, **names), mode="eval").body for template in templates]


@cache
def rules():
    """[(pattern, templates of what may stand in its place)]"""
    brackets = [text.format(*both) for text in BRACKETS for both in product(("+", "-", "*", "/", "@", "**"), repeat=2)]
    pairs = [line.split(" → ") for line in [*RULES.strip().split("\n"), *brackets]]
    return [(ast.parse(pattern, mode="eval").body, templates.split("; ")) for pattern, templates in pairs]


def match_pattern(pattern, node, names):
    """Whether an expression, or a part of one, has this pattern; what its letters stand for goes into `names`."""
    if isinstance(pattern, ast.Name) and len(pattern.id) == 1:
        return ast.dump(names.setdefault(pattern.id, node)) == ast.dump(node)
    if isinstance(pattern, ast.AST) and type(pattern) is type(node):
        parts = ((getattr(pattern, name), getattr(node, name)) for name in pattern._fields if name != "ctx")
        return all(match_pattern(*both, names) for both in parts)
    if isinstance(pattern, list) and len(pattern) == len(node):
        return all(match_pattern(*both, names) for both in zip(pattern, node))
    return pattern == node


def alternatives(node):
    """Expressions that may stand in the place of this one by mistake."""
    for pattern, templates in rules():
        names = {}
        if match_pattern(pattern, node, names):
            yield from expressions(templates, **names)
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            found = (-value, 2 * value, value / 2, value + 1, value - 1, value**2, 0, 1, 2)
            kept = dict.fromkeys(int(a) if a == int(a) else a for a in found if a != value)
            yield from (ast.Constant(a) for a in kept)
        case ast.Call(func=ast.Attribute(value=value, attr=attr), args=arguments, keywords=keywords):
            if attr in ("mean", "sum", "max"):
                yield from expressions(("a[0]", "a[-1]", "a[:1]"), a=value)  # one of them, not their sum
            if attr == "transpose":  # two axes swapped
                for i in range(len(arguments) - 1):
                    swapped = [*arguments[:i], arguments[i + 1], arguments[i], *arguments[i + 2 :]]
                    yield ast.Call(node.func, swapped, keywords)
            yield arguments[0] if arguments and isinstance(value, ast.Name) and value.id == "np" else value
        case ast.Call(args=arguments):  # a function, and what goes into it
            yield from arguments[:1]
            yield from (ast.Call(node.func, [node], []) for _ in [0] if len(arguments) == 1)
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            yield ast.Compare(right, [op], [left])


def misreadings(function):
    """Statements that change an argument before anything is computed."""
    names = [ast.Name(argument.arg, ast.Load()) for argument in function.args.args]
    texts = dict.fromkeys(fill(text, a=a, n=n) for a in names for n in names if a is not n for text in MISREADINGS)
    return [ast.parse(text).body[0] for text in texts]


def places(node, step=None):
    """(node, a function that puts another in its place, the step that it is a part of, whether it is all that a line
    computes) of each expression below a node; the step is None for one that a reader sees as a step itself."""
    step = step if isinstance(node, (ast.Tuple, ast.Attribute, ast.Slice, ast.keyword)) else node
    step = step if isinstance(step, ast.expr) else None
    for field, child in ast.iter_fields(node):
        for i, one in enumerate(child if isinstance(child, list) else [child]):
            stored = isinstance(getattr(one, "ctx", None), ast.Store)
            if not isinstance(one, ast.AST) or isinstance(one, (ast.arguments, ast.JoinedStr)) or stored:
                continue
            if isinstance(one, ast.expr) and not isinstance(one, (ast.Tuple, ast.Starred, ast.Slice)):
                line = isinstance(node, (ast.Assign, ast.Return, ast.AugAssign, ast.Tuple))
                put = partial(child.__setitem__, i) if isinstance(child, list) else partial(setattr, node, field)
                yield one, put, step, line
            yield from places(one, step or (None if isinstance(node, ast.Return) else one))


def variables(function):
    """A function's arguments and variables."""
    stored = {one.id for one in ast.walk(function) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    names = dict.fromkeys([*(argument.arg for argument in function.args.args), *sorted(stored)])
    return [ast.Name(name, ast.Load()) for name in names]


def step_changes(function, node, line):
    """Replacements of an expression; `line` says whether it is all that a line computes."""
    yield from alternatives(node)
    if line:
        yield from expressions(("-1 * a", "2 * a", "0.5 * a", *PARTS), a=node)
        for name in variables(function):
            yield from expressions(TERMS, a=node, n=name)


def name_changes(function, node, line):
    """The other variables, or parts of this one, in the place of a variable; other keys in the place of a key."""
    of_keys = [one.slice for one in ast.walk(function) if isinstance(one, ast.Subscript)]
    keys = dict.fromkeys(one.value for one in of_keys if isinstance(one, ast.Constant) and isinstance(one.value, str))
    match node:
        case ast.Name(id=name):
            yield from (other for other in variables(function) if other.id != name)
            yield from expressions((*PARTS, "a + 1", "a - 1"), a=node)
        case ast.Constant(value=str(key)) if key in keys:
            yield from (ast.Constant(other) for other in keys if other != key)


def replacements(function, node, line):
    """A change of an expression's value, or another of the function's expressions in its place."""
    if isinstance(node, ast.Constant):
        return
    yield from expressions(REPLACEMENTS, a=node)
    below = (one for statement in function.body for one in ast.walk(statement))
    for other in {ast.dump(one): one for one in below if isinstance(one, (ast.BinOp, ast.Call))}.values():
        if not any(one is node for one in ast.walk(other)):
            yield other


@cache
def changed_solutions(name):
    """[(name of a function, code of its changed definition, the changed step)], at most `MAX_CHANGES`; the exercise's
    own function comes first."""
    return list(islice(changes_of(name), MAX_CHANGES))


def changes_of(name):
    """The changed solutions of an exercise, one after the other, without a limit."""
    functions = [ast.parse(text).body[0] for text in sources(find(name).right).values()]
    for function in sorted(functions, key=lambda one: one.name != name):
        own = function.name == name
        for statement in misreadings(function) if own else ():
            function.body.insert(0, statement)
            yield function.name, compile_function(function), ast.unparse(statement)
            del function.body[0]
        for changes in (step_changes, name_changes, *([replacements] if own else [])):
            for node, put, step, line in list(places(function)):
                for other in list(changes(function, node, line and own)):
                    put(ast.fix_missing_locations(other))
                    yield function.name, compile_function(function), ast.unparse(step or other)
                put(node)


def compile_function(function):
    with warnings.catch_warnings():  # of a number in the place of an array
        warnings.simplefilter("ignore", SyntaxWarning)
        return compile(ast.Module([function], []), "<solution>", "exec")


def find_slips(attempt):
    """Sentences about the wrong outputs that one changed step explains; as few steps as do."""
    exercise, got, wrong = attempt.exercise, attempt.got, attempt.wrong
    space, best, given = namespace(sources(exercise.right)), {}, attempt.arguments()
    for function, code, step in changed_solutions(exercise.name):
        outputs = evaluate_change(exercise, space, function, code, deepcopy(given))
        same = [name for name in wrong if name in outputs and agree(outputs[name], got[name], attempt.case.tolerance)]
        for name in same:
            if name not in best or len(same) > len(best[name][0]):
                best[name] = same, function, step
        if len(same) == len(wrong):
            break
    found = dict.fromkeys((tuple(same), function, step) for same, function, step in best.values())
    return [sentence(exercise, *one) for one in found]


def evaluate_change(exercise, space, function, code, arguments):
    """The outputs by name with one function changed; none if it fails."""
    right = space[function]
    exec(code, space)
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return exercise.label_outputs(exercise.answer(space[exercise.name], arguments))
    except Exception:  # a change that makes no sense may raise anything
        return {}
    finally:
        space[function] = right


def sentence(exercise, same, function, step):
    names = f"{', '.join(same[:-1])} and {same[-1]}" if len(same) > 1 else same[0]
    inside = "" if function == exercise.name else f" in {function}"
    return f"{names} would come out like this with the step `{step}`{inside}, which isn't right: look at that step."
