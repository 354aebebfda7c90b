"""A model layer by layer: shapes, parameters, multiply-adds, activation memory.

Nothing is worked out by hand: each part runs on one sample and on two, with weights that are zero, and what its caches
hold is counted. So any architecture with `parts()` has a summary, and of parts that are alike one runs for all.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tinyvit.backend import Key
from tinyvit.levels import level
from tinyvit.nn import Context, Module
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


class Call(NamedTuple):
    """A module's call while its part runs."""

    module: Module
    output: object
    cache: object


def summarize(model, batch_size=1, recompute=False, frozen=0):
    """The rows of a model's summary (see `Row`) for a batch of images, without its first `frozen` parts.

    With `recompute`, the activations are those of a step with `Context(recompute=True)`: a layer keeps its input only,
    and all else is there for one layer at a time, in the last row.
    """
    if batch_size < 1:
        raise ValueError(f"expected a batch size of at least 1, got {batch_size}")
    rows, largest = [], None
    for i, part in enumerate(measured_parts(model)):
        if i < frozen:
            continue
        own = part.rows
        if recompute and 1 <= i <= model.depth:
            rows.append(Row(part.path, "input", part.input_shape, 0, 0, int(np.prod(part.input_shape))))
            one = Row("layers", "one at a time", part.input_shape, 0, 0, sum(row.activations for row in own))
            largest = one if largest is None else max(largest, one, key=lambda row: row.activations)
            own = [row._replace(activations=0) for row in own]
        rows += own
    rows += [largest] if largest else []
    return [
        row._replace(
            shape=(batch_size * row.shape[0], *row.shape[1:]), multiply_adds=batch_size * row.multiply_adds,
            activations=batch_size * row.activations,
        )
        for row in rows
    ]  # fmt: skip


def activation_bytes(model, batch_size, recompute=False, bytes_per_number=4, frozen=0):
    """Bytes that the backward of a batch needs of its forward: what the last line of a summary says.

    frozen   how many of the first parts are frozen: the backward ends above them

    What an operation needs only while it runs, the weights, gradients and the optimizer's state come on top of that.
    """
    return bytes_per_number * sum(row.activations for row in summarize(model, batch_size, recompute, frozen))


def widest_output(model):
    """Numbers in an image or the largest output of a module for it, which depend on the model's shape alone."""
    return max(part.widest for part in measured_parts(model))


def measured_parts(model):
    """A `Part` for each of a model's parts."""
    return _measured_parts(type(model), model.config, level())


@lru_cache(maxsize=8)
def _measured_parts(architecture, config, level):
    model = architecture(config, device="meta")
    paths = {id(module): path for path, module in model.named_modules()}
    inputs = [np.zeros((samples, *model.image_shape), "float32") for samples in (1, 2)]
    kept, counted, known, found = [{}, {}], set(), {}, []
    for _, part in model.parts():
        path = paths[id(part)]
        alike = structure(part), inputs[0].shape, id(base(inputs[0])) in kept[0], path.startswith("(") and path
        if alike not in known:
            shape = inputs[0].shape
            part._allocate("float32", "cpu", None)
            one, two = (run(part, x) for x in inputs)
            rows = [
                first._replace(activations=second.activations - first.activations)
                for first, second in zip(rows_of(one, paths, kept[0], counted), rows_of(two, paths, kept[1], set()))
            ]
            inputs = [calls[-1].output for calls in (one, two)]
            widest = max(int(np.prod(shape)), *(getattr(call.output, "size", 0) for call in one))
            known[alike] = Part(path, shape, widest, rows), inputs
            found.append(known[alike][0])
        else:
            twin, inputs = known[alike]
            renamed = [row._replace(path=path + row.path[len(twin.path) :]) for row in twin.rows]
            found.append(twin._replace(path=path, rows=renamed))
    return [part._replace(rows=[row for row in part.rows if is_telling(row)]) for part in found]


def is_telling(row):
    """Whether a row says more than that a layer is there: dropout has no row."""
    return row.parameters or row.activations or row.kind.endswith("Pool")


def structure(value):
    """What decides how much a module costs; equal for modules that are alike."""
    if isinstance(value, Module):
        own = {name: structure(item) for name, item in vars(value).items() if name != "path" and name[0] != "_"}
        return type(value), tuple(own.items())
    if isinstance(value, (Variable, np.ndarray)):
        return value.shape
    if isinstance(value, (list, tuple)):
        return tuple(map(structure, value))
    if isinstance(value, float):
        return bool(value)  # a rate: what is never dropped keeps no mask
    return value if value.__hash__ else id(value)


def run(part, x):
    """Every call of a module while a part runs on `x`, a caller after those that it has called."""
    calls, modules = [], [module for _, module in part.named_modules()]

    def recorded(module, forward):
        def run(*inputs, **named):
            output, cache = forward(*inputs, **named)
            calls.append(Call(module, output, cache))
            return output, cache

        return run

    for module in modules:
        module.forward = recorded(module, module.forward)
    part(x, Context(training=True, key=Key(0, 0)))
    for module in modules:
        del module.forward
    return calls


def rows_of(calls, paths, kept, counted):
    """The rows of these calls. Into `kept` goes what their caches hold, into `counted` the parameters."""
    rows = []

    def new_parameters(module):
        own = [value for value in vars(module).values() if isinstance(value, Parameter) and id(value) not in counted]
        counted.update(map(id, own))
        return own

    def row(path, kind, shape, parameters, multiply_adds, cache):
        held = sum(array.nbytes // 4 for array in new_arrays(cache, kept))
        rows.append(Row(path, kind, shape, sum(p.size for p in parameters), multiply_adds, held))

    for module, output, cache in calls:
        path, shape, children = paths[id(module)], getattr(output, "shape", ()), dict(module.children())
        if not children:
            matrices = [value for value in vars(module).values() if isinstance(value, Parameter) and value.is_matrix]
            products = sum(int(np.prod(shape)) // p.shape[0] * p.size for p in matrices)
            row(path, type(module).__name__, shape, new_parameters(module), products, cache)
            continue
        for parameter in new_parameters(module):
            row(parameter.name, "Parameter", shape, [parameter], 0, None)
        prefix, fields = "" if path.startswith("(") or not path else path + ".", getattr(cache, "_fields", ())
        for name, item in zip(fields, cache if isinstance(cache, tuple) else ()):
            array = next(arrays_in(item), None)  # what no module below has said of itself: an operation
            if array is not None:
                child = children.get(name)
                kind = type(child).__name__ if child else type(item).__name__.removesuffix("Cache")
                row(prefix + name, kind, array.shape, new_parameters(child) if child else [], products_in(item), item)
        rows = in_forward_order(rows, prefix, fields)
    return rows


def in_forward_order(rows, prefix, fields):
    """The rows with those of a module in the order of its cache's fields, which is that of its forward."""

    def place(row):
        return fields.index(row.path[len(prefix) :].split(".")[0])

    own = [row for row in rows if row.path.startswith(prefix) and row.path[len(prefix) :].split(".")[0] in fields]
    own, at = iter(sorted(own, key=place)), set(map(id, own))
    return [next(own) if id(row) in at else row for row in rows]


def products_in(cache):
    """Multiply-adds of an attention, scores and weighted values."""
    q, k, v = (getattr(cache, name, None) for name in "qkv")
    return 0 if q is None else q.size * k.shape[-2] + q.size // q.shape[-1] * k.shape[-2] * v.shape[-1]


def arrays_in(cache):
    """Every array in a tree of tuples, lists and dicts, in its order."""
    if isinstance(cache, np.ndarray):
        yield cache
    elif isinstance(cache, (tuple, list, dict)):
        for item in cache.values() if isinstance(cache, dict) else cache:
            yield from arrays_in(item)


def new_arrays(cache, kept):
    """The memory that a cache holds and none before has held, but masks; it is added to `kept`, by id."""
    found = {id(base(array)): base(array) for array in arrays_in(cache)}
    new = {key: array for key, array in found.items() if key not in kept}
    kept.update(new)
    return [array for array in new.values() if array.dtype != bool]


def base(array):
    """The array whose memory this is a view of."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def format_summary(rows, bytes_per_number=4):
    """The rows as a table with totals."""
    header = ("layer", "kind", "output", "parameters", "multiply-adds", "activations")
    lines = [
        (
            row.path,
            row.kind,
            "×".join(str(side) for side in row.shape),
            f"{row.parameters:,}",
            f"{row.multiply_adds:,}",
            megabytes(row.activations * bytes_per_number),
        )
        for row in rows
    ]
    totals = (
        "total",
        "",
        "",
        f"{sum(row.parameters for row in rows):,}",
        f"{sum(row.multiply_adds for row in rows):,}",
        megabytes(sum(row.activations for row in rows) * bytes_per_number),
    )
    widths = [max(len(line[i]) for line in (header, totals, *lines)) for i in range(len(header))]
    rule = "  ".join("─" * width for width in widths)

    def text(line):
        cells = [cell.ljust(w) if i < 3 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths))]
        return "  ".join(cells).rstrip()

    return "\n".join([text(header), rule, *map(text, lines), rule, text(totals)])


def megabytes(count):
    return f"{count / 1e6:,.2f} MB"
