"""Finds a slip that has no name: the plain solution is changed in one place, until it gives the learner's numbers.

One place is a name, a number, an operator, a function, a transpose, an axis, or a term that is added or left out. The
answer shows the step as the learner seems to have it, and not the right one.
"""

import ast
import warnings
from copy import deepcopy
from functools import cache

import numpy as np

from tinyvit.exercises.catalogue import find
from tinyvit.exercises.exercise import namespace, sources
from tinyvit.exercises.general_mistakes import agree

OPERATORS = {
    ast.Add: (ast.Sub, ast.Mult),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div, ast.Add),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (),
    ast.MatMult: (ast.Mult,),
}
MAX_CHANGES = 2000  # changes that are tried: about two seconds for a whole ViT
REDUCTIONS = "mean", "sum", "max"
FUNCTIONS = {"exp": ("exp2", "expm1", "square"), "log": ("log2", "log10", "log1p")}
FACTORS = -1, 2, 0.5
PARTS = "[:1]", "[-1:]", "[::-1]", "[:, ::-1]"  # of an array: the first, the last, the other way round
SLICES = {text: ast.parse(f"a{text}", mode="eval").body.slice for text in (*PARTS, "[0]", "[-1]")}
MISREADINGS = "{0} = {1}", "{0} = -{0}", "{0} = 0 * {0}", "{0} = abs({0})", "{0} = {0} - {0}.mean(-1, keepdims=True)"


def alternatives(node):
    """Expressions that may stand in the place of this one by mistake."""
    match node:
        case ast.Subscript(value=value, slice=ast.Tuple(elts=[*_, ast.Constant()] as axes)):
            axis = ast.Constant(len(axes) - 1)  # all of them in the place of one
            yield from (ast.Call(ast.Attribute(value, one, ast.Load()), [axis], []) for one in REDUCTIONS)
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            found = (-value, 2 * value, value / 2, value + 1, value - 1, value**2, 0, 1, 2)
            kept = dict.fromkeys(int(a) if a == int(a) else a for a in found if a != value)
            yield from (ast.Constant(a) for a in kept)
        case ast.UnaryOp():
            yield node.operand
        case ast.BinOp(left=left, op=op, right=right):
            yield from (ast.BinOp(left, other(), right) for other in OPERATORS.get(type(op), ()))
            yield from (left, right)
            if isinstance(right, ast.BinOp):  # a bracket in another place, or none
                yield ast.BinOp(ast.BinOp(left, op, right.left), right.op, right.right)
                yield ast.BinOp(right.left, right.op, ast.BinOp(left, op, right.right))
            if isinstance(left, ast.BinOp):
                yield ast.BinOp(left.left, left.op, ast.BinOp(left.right, op, right))
                yield ast.BinOp(ast.BinOp(left.left, op, right), left.op, left.right)
            if ast.dump(left) == ast.dump(right):
                yield ast.Call(ast.Name("abs", ast.Load()), [left], [])
            if isinstance(op, ast.Sub):
                yield ast.BinOp(right, op, left)
            if isinstance(op, ast.MatMult):
                yield from (ast.BinOp(left, op, ast.Attribute(right, "mT", ast.Load())), ast.BinOp(right, op, left))
        case ast.Attribute(value=value, attr="mT" | "T"):
            yield value
        case ast.Call(func=ast.Attribute(value=value, attr=attr), args=arguments, keywords=keywords):
            if attr in REDUCTIONS:
                for other in REDUCTIONS:
                    yield ast.Call(ast.Attribute(value, other, ast.Load()), arguments, keywords)
                yield from (slice_node(value, text) for text in ("[0]", "[-1]", "[:1]"))  # one of them, not their sum
            for other in FUNCTIONS.get(attr, ()):
                yield ast.Call(ast.Attribute(value, other, ast.Load()), arguments, keywords)
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


def additions(node, names):
    """The expression with a variable too many, as a term or a factor, or with a constant factor."""
    yield from (ast.BinOp(ast.Constant(factor), ast.Mult(), node) for factor in FACTORS)
    yield from (slice_node(node, text) for text in PARTS)
    for name in names:
        yield from (ast.BinOp(node, op(), ast.Name(name, ast.Load())) for op in (ast.Add, ast.Sub, ast.Mult, ast.Div))


def slice_node(node, text):
    """The expression with these brackets behind it."""
    return ast.Subscript(node, SLICES[text], ast.Load())


def misreadings(function):
    """Statements that change an argument before anything is computed."""
    names = [argument.arg for argument in function.args.args]
    pairs = [(a, b) for a in names for b in names if a != b]
    texts = dict.fromkeys(text.format(*pair) for pair in pairs for text in MISREADINGS)
    return [ast.parse(text).body[0] for text in texts]


def places(node, step=None):
    """(parent, field, index or None, the step that it is a part of, whether it is all that a line computes) of each
    expression below a node; the step is None for one that a reader sees as a step itself."""
    step = step if isinstance(node, (ast.Tuple, ast.Attribute, ast.Slice, ast.keyword)) else node
    step = step if isinstance(step, ast.expr) else None
    for field, child in ast.iter_fields(node):
        for i, one in enumerate(child if isinstance(child, list) else [child]):
            stored = isinstance(getattr(one, "ctx", None), ast.Store)
            if not isinstance(one, ast.AST) or isinstance(one, (ast.arguments, ast.JoinedStr)) or stored:
                continue
            if isinstance(one, ast.expr) and not isinstance(one, (ast.Tuple, ast.Starred)):
                line = isinstance(node, (ast.Assign, ast.Return, ast.AugAssign, ast.Tuple))
                yield node, field, i if isinstance(child, list) else None, step, line
            yield from places(one, step or (None if isinstance(node, ast.Return) else one))


def variables(function):
    """The names of a function's arguments and variables."""
    stored = {one.id for one in ast.walk(function) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    return list(dict.fromkeys([*(a.arg for a in function.args.args), *sorted(stored)]))


def step_changes(function, parent, node, line):
    """Replacements of an expression; `line` says whether it is all that a line computes."""
    return [*alternatives(node), *(additions(node, variables(function)) if line else ())]


def name_changes(function, parent, node, line):
    """The other variables, or parts of this one, in the place of a variable; other keys in the place of a key."""
    match node:
        case ast.Name(id=name):
            yield from (ast.Name(other, ast.Load()) for other in variables(function) if other != name)
            yield from (slice_node(node, text) for text in PARTS)
            yield from (ast.BinOp(node, op(), ast.Constant(1)) for op in (ast.Add, ast.Sub))
        case ast.Constant(value=str(key)) if isinstance(parent, ast.Subscript):
            of_others = (one.slice for one in ast.walk(function) if isinstance(one, ast.Subscript))
            keys = dict.fromkeys(one.value for one in of_others if isinstance(one, ast.Constant))
            yield from (ast.Constant(other) for other in keys if isinstance(other, str) and other != key)


def replacements(function, parent, node, line):
    """A change of an expression's value, or another of the function's expressions in its place."""
    if isinstance(node, ast.Constant):
        return
    for one in (0, 1):
        number = ast.Constant(one)
        yield from (number, ast.BinOp(number, ast.Sub(), node), ast.BinOp(number, ast.Add(), node))
    yield from (ast.BinOp(ast.Constant(1), ast.Div(), node), ast.BinOp(node, ast.Pow(), ast.Constant(2)))
    below = (one for statement in function.body for one in ast.walk(statement))
    for other in {ast.dump(one): one for one in below if isinstance(one, (ast.BinOp, ast.Call))}.values():
        if not any(one is node for one in ast.walk(other)):
            yield other


@cache
def changed_solutions(name):
    """[(name of a function, code of its changed definition, the changed step)], at most `MAX_CHANGES`; the exercise's
    own function comes first."""
    made = []
    functions = [ast.parse(text).body[0] for text in sources(find(name).right).values()]
    for function in sorted(functions, key=lambda one: one.name != name):
        own = function.name == name
        for statement in misreadings(function) if own else ():
            function.body.insert(0, statement)
            made.append((function.name, compile_function(function), ast.unparse(statement)))
            del function.body[0]
        for changes in (step_changes, name_changes, *([replacements] if own else [])):
            for parent, field, index, step, line in list(places(function)):
                held = getattr(parent, field)
                node = held if index is None else held[index]
                for other in list(changes(function, parent, node, line and own)) if len(made) < MAX_CHANGES else ():
                    put(parent, field, index, ast.fix_missing_locations(other))
                    made.append((function.name, compile_function(function), ast.unparse(step or other)))
                put(parent, field, index, node)
    return made[:MAX_CHANGES]


def compile_function(function):
    with warnings.catch_warnings():  # of a number in the place of an array
        warnings.simplefilter("ignore", SyntaxWarning)
        return compile(ast.Module([function], []), "<solution>", "exec")


def put(parent, field, index, node):
    if index is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[index] = node


def find_slips(exercise, case, arguments, got, wrong):
    """Sentences about the wrong outputs that one changed step explains; as few steps as do.

    arguments   a function that draws new ones
    """
    space, best, given = namespace(sources(exercise.right)), {}, arguments()
    for function, code, step in changed_solutions(exercise.name):
        outputs = evaluate_change(exercise, space, function, code, deepcopy(given))
        same = [name for name in wrong if name in outputs and agree(outputs[name], got[name], case.tolerance)]
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
