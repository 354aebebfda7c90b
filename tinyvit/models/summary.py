"""A model layer by layer: shapes, parameters, multiply-adds, activation memory.

Nothing is worked out by hand: each part runs on one sample, with weights that are zero, and what its cache holds is
counted. So any architecture with `parts()` has a summary, and of parts that are alike one runs for all.
"""

from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from tinyvit.functional.packing import PackedAttentionCache
from tinyvit.keys import Key
from tinyvit.levels import level
from tinyvit.nn import Module
from tinyvit.nn.chain import Operation
from tinyvit.nn.context import Context, as_one_of_two
from tinyvit.nn.conv import ConvTranspose2d
from tinyvit.nn.variables import Parameter, Variable


class Row(NamedTuple):
    """One line of a summary."""

    path: str
    kind: str           # the layer's class, or the operation's
    shape: tuple        # of the output; of an operation, of the first array that it keeps
    parameters: int
    multiply_adds: int  # of the matrix products, forwards
    activations: int    # float32 numbers that the backward needs and that no layer before has kept already, at the
    #                     level of kernels in force; no masks, which take a byte per entry


class Part(NamedTuple):
    """One of a model's parts, for one sample."""

    path: str
    input_shape: tuple
    widest: int  # numbers of its input, or of the largest output of a module in it
    rows: list


def summarize(model, batch_size=1, recompute=False):
    """The rows of a model's summary (see `Row`) for a batch of images.

    With `recompute`, the activations are those of a step with `Context(recompute=True)`: a layer keeps its input only,
    and all else is there for one layer at a time, in the last row.
    """
    if batch_size < 1:
        raise ValueError(f"expected a batch size of at least 1, got {batch_size}")
    rows, layers = [], []
    for i, (path, shape, _, own) in enumerate(measure_parts(model)):
        if recompute and 1 <= i <= model.depth:
            layers.append(Row("layers", "one at a time", shape, 0, 0, sum(row.activations for row in own)))
            rows.append(Row(path, "input", shape, 0, 0, prod(shape)))
            rows += [row._replace(activations=0) for row in own]
        else:
            rows += own
    if layers:
        rows.append(max(layers, key=lambda row: row.activations))
    B = batch_size
    return [
        Row(path, kind, (*(B * side for side in shape[:1]), *shape[1:]), parameters, B * multiply_adds, B * activations)
        for path, kind, shape, parameters, multiply_adds, activations in rows
    ]


def activation_bytes(model, batch_size, recompute=False, bytes_per_number=4):
    """Bytes that the backward of a batch needs of its forward: what the last line of a summary says.

    What an operation needs only while it runs, the weights, gradients and the optimizer's state come on top of that.
    """
    return bytes_per_number * sum(row.activations for row in summarize(model, batch_size, recompute))


def widest_output(model):
    """Numbers in an image or the largest output of a module for it, which depend on the model's shape alone."""
    return max(part.widest for part in measure_parts(model))


def measure_parts(model):
    """A `Part` for each of a model's parts."""
    return _measure_parts(type(model), model.config, level())


@lru_cache(maxsize=8)
def _measure_parts(architecture, config, level):
    model = architecture(config, device="meta")
    names = {id(module): (path, prefix) for path, prefix, module in model._walk()}
    known, found = {}, []
    for x, parts in model.towers():
        seen = {}
        for _, part in parts:
            path, shape = names[id(part)][0], x.shape
            alike = structure(part), shape, id(base(x)) in seen, part.transparent and path
            if alike not in known:
                part._allocate("float32", "cpu", None)
                new((base(variable.data) for _, variable in part._named_variables()), seen)  # they are not activations
                outputs = Outputs()
                x, cache = part(x, as_one_of_two(Context(training=True, key=Key(0, 0), observer=outputs)))
                rows = [row for row in rows_of(part, cache, outputs, names, seen) if is_informative(row)]
                widest = max(prod(shape), *(prod(shape) for shapes in outputs.values() for shape in shapes))
                known[alike] = Part(path, shape, widest, rows), x
                del cache
                for _, variable in part._named_variables():
                    variable.release()
                # The next part may keep what this one gave, and what else it kept must not stay in memory.
                seen = {key: thing for key, thing in seen.items() if thing is base(x) or isinstance(thing, Parameter)}
            twin, x = known[alike]
            rows = [row._replace(path=row.path.replace(twin.path, path, 1)) for row in twin.rows]
            found.append(twin._replace(path=path, rows=rows))
    own = [Row(name, "Parameter", (1,), p.size, 0, 0) for name, p in vars(model).items() if isinstance(p, Parameter)]
    return [*found, Part("", (1,), 0, own)] if own else found


class Outputs(dict):
    """An observer: the shapes of what each module gave, by the module's path."""

    def value(self, path, y):
        self.setdefault(path, []).append(getattr(y, "shape", ()))


def structure(module):
    """The settings that determine a module's cost; equal for modules that are alike."""

    def setting(value):
        if isinstance(value, (Variable, np.ndarray)):
            return value.shape
        if isinstance(value, float):
            return bool(value)  # a rate: what is never dropped keeps no mask
        return None if isinstance(value, (Module, list)) else repr(value)  # modules come on their own

    return tuple(
        (type(below), *((name, setting(value)) for name, value in vars(below).items() if name != "path"))
        for _, below in module.named_modules()
    )


def rows_of(module, cache, outputs, names, seen):
    """The rows of a module, in the order of its cache, which is that of its forward.

    A layer has one row, and so has a module whose cache doesn't mirror its children. The parameters and arrays that are
    counted are added to `seen`, so that each counts once.
    """
    (path, prefix), children, items = names[id(module)], dict(module.children()), []
    for name, item in zip(getattr(cache, "_fields", ()), cache or ()):
        name, several = name.removeprefix("_"), f"{name}.0" in children
        items += [(f"{name}.{i}", one) for i, one in enumerate(item)] if several else [(name, item)]
    shape = outputs.get(module.path, [()])[-1]
    if not any(name in children for name, _ in items):
        products = sum(multiply_adds(below, outputs) for _, below in module.named_modules())
        size = sum(parameter.size for parameter in new(module.parameters(), seen))
        kind = type(cache).__name__.removesuffix("Cache") if isinstance(module, Operation) else type(module).__name__
        yield Row(path.strip("()"), kind, shape, size, products, count_new_numbers(cache, seen))
        return
    for name, value in vars(module).items():
        if isinstance(value, Parameter) and new([value], seen):
            yield Row(prefix + name, "Parameter", shape, value.size, 0, 0)
    for name, item in items:
        if name in children:
            yield from rows_of(children.pop(name), item, outputs, names, seen)
        elif (array := next(arrays_in(item), None)) is not None:
            kind = type(item).__name__.removesuffix("Cache")
            yield Row(prefix + name, kind, array.shape, 0, attention_multiply_adds(item), count_new_numbers(item, seen))
    for child in children.values():  # those that the cache doesn't name
        yield from rows_of(child, None, outputs, names, seen)


def is_informative(row):
    """Whether a row says more than that a layer is there: dropout has no row."""
    return row.parameters or row.activations or row.multiply_adds or "Pool" in row.kind


def multiply_adds(module, outputs):
    """The multiply-adds of the products with a module's own matrices, in all of its calls."""
    matrices = [p for p in vars(module).values() if isinstance(p, Parameter) and p.is_matrix]
    transposed = isinstance(module, ConvTranspose2d)  # its weight has the inputs first
    each = [p.shape[0] if transposed else p.size // p.shape[0] for p in matrices]  # number of the result
    return sum(prod(shape) * count for count in each for shape in outputs.get(module.path, ()))


def attention_multiply_adds(cache):
    """The multiply-adds of the scores and the weighted values, if this is an attention's cache."""
    if isinstance(cache, PackedAttentionCache):
        return sum(map(attention_multiply_adds, cache.heads))
    q, k, v = (getattr(cache, name, None) for name in "qkv")
    if q is None:
        return 0
    return q.size * k.shape[-2] + (0 if v is None else q.size // q.shape[-1] * k.shape[-2] * v.shape[-1])


def arrays_in(cache):
    """Every array in a tree of tuples and lists, in its order. New statistics of buffers are in a dict: not these."""
    if isinstance(cache, np.ndarray):
        yield cache
    elif isinstance(cache, (tuple, list)):
        for item in cache:
            yield from arrays_in(item)


def new(things, seen):
    """Those that are not in `seen` yet, where they are added by id."""
    found = {id(thing): thing for thing in things if id(thing) not in seen}
    seen |= found
    return list(found.values())


def count_new_numbers(cache, seen):
    """Numbers in the memory that a cache holds and none before has held.

    Masks don't count, and neither do tables that every call shares, which are read-only (`backend.constant`).
    """
    arrays = new(map(base, arrays_in(cache)), seen)
    return sum(array.nbytes // 4 for array in arrays if array.dtype != bool and array.flags.writeable)


def base(array):
    """The array whose memory this is a view of."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def format_summary(rows, bytes_per_number=4):
    """The rows as a table with totals."""

    def cells(row):
        shape, megabytes = "×".join(map(str, row.shape)), row.activations * bytes_per_number / 1e6
        return row.path, row.kind, shape, f"{row.parameters:,}", f"{row.multiply_adds:,}", f"{megabytes:,.2f} MB"

    header = ("layer", "kind", "output", "parameters", "multiply-adds", "activations")
    totals = Row("total", "", (), *(sum(row[i] for row in rows) for i in (3, 4, 5)))
    table = [header, *map(cells, [*rows, totals])]
    widths = [max(map(len, column)) for column in zip(*table)]
    lines = [
        "  ".join(cell.ljust(w) if i < 3 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths))).rstrip()
        for line in table
    ]
    rule = "  ".join("─" * width for width in widths)
    return "\n".join([lines[0], rule, *lines[1:-1], rule, lines[-1]])
