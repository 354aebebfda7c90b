"""Updates of buffers: collected by a forward, committed by the training step."""

from collections import Counter
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from tinyvit.arrays import array_module
from tinyvit.functional.cast import cast
from tinyvit.text import list_names


class BufferUpdate(NamedTuple):
    """Statistics for the buffers of a module, put into its cache by a forward that trains.

    A step averages them over the parts of a batch and calls `module.commit(statistics)` once, if it is applied.

    statistics   name -> array, each a mean over the samples that the forward was given: a mean and a mean of squares,
                 for example, but not a variance, since the variance of a batch is not the mean of its parts' variances
    """

    module: Any
    statistics: dict[str, Any]


def buffer_updates(tree):
    """Every BufferUpdate in a tree of tuples, lists and dicts, in its order."""
    found, left = [], [tree]
    while left:
        item = left.pop()
        if isinstance(item, BufferUpdate):
            found.append(item)
        else:
            items = item.values() if isinstance(item, dict) else item if isinstance(item, (tuple, list)) else ()
            left += [item for item in items if may_hold_updates(type(item))][::-1]
    return found


@cache
def may_hold_updates(kind):
    """Whether to look into what is of this type: tuples, lists and dicts, but no operation's cache."""
    operations = ("tinyvit.functional.", "tinyvit.kernels.")
    return issubclass(kind, (tuple, list, dict)) and not kind.__module__.startswith(operations)


def mean_updates(parts):
    """One BufferUpdate per module, from (weight, updates) pairs, one per part of a batch; a pure function.

    A part counts by its weight; of a module that was called several times in a part, the calls count equally.
    """
    found = {}
    for weight, updates in parts:
        calls = Counter(id(module) for module, _ in updates)
        for module, statistics in updates:
            found.setdefault(id(module), (module, []))[1].append((weight / calls[id(module)], statistics))
    return [BufferUpdate(module, weighted_mean(weighted)) for module, weighted in found.values()]


def weighted_mean(weighted):
    """The mean of dicts of arrays, from (weight, dict) pairs, in float32 or finer."""
    total = sum(weight for weight, _ in weighted)
    return {name: sum(w / total * at_least_float32(s[name]) for w, s in weighted) for name in weighted[0][1]}


def check_returned(model):
    """Raise ValueError if a module updates buffers in training, for an objective that returned no updates."""
    updating = [path for path, module in model.named_modules() if hasattr(module, "commit") and not module.frozen]
    if updating:
        raise ValueError(
            f"{list_names(updating)} update buffers in training, and the objective returned no updates; return (loss, "
            "backward, metrics, nn.buffer_updates(cache))"
        )


def at_least_float32(x):
    if str(x.dtype) not in ("float16", "bfloat16"):
        return x
    return x.astype("float32") if array_module(x) is np else cast(x, "float32")


def commit(updates, applied):
    """Have every module that isn't frozen commit its statistics to its buffers, unless the step was left out.

    applied   a boolean, or one on a GPU, which decides there while nothing waits for it
    """
    on_gpu = array_module(applied) is not np
    for module, statistics in updates if on_gpu or applied else ():
        if module.frozen:
            continue
        buffers = [buffer for _, buffer in module.named_buffers()] if on_gpu else []
        before = [buffer.data.copy() for buffer in buffers]
        module.commit(statistics)
        for buffer, old in zip(buffers, before):
            array_module(old).copyto(buffer.data, old, where=~applied)
