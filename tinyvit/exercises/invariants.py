"""Locates an error by invariants of the right answer, where no mistake is recognised.

A softmax's gradient adds up to 0 over a row, whatever came in: if a learner's doesn't, the path through the sum is
wrong. What holds is written down for each exercise; and the shape of the error itself says where to look.
"""

import numpy as np

from tinyvit.exercises.exercise import namespace, sources
from tinyvit.exercises.outputs import agree


def broken_invariants(attempt):
    """Sentences about the wrong outputs: which invariant is broken, or how the error is spread."""
    sentences, exercise, tolerance = [], attempt.exercise, attempt.case.tolerance
    for name in attempt.wrong:
        got, expected = attempt.got[name], attempt.expected[name]
        if got.shape != expected.shape or not np.isfinite(got).all():
            continue
        for output, holds, residual in exercise.invariants:
            if output == name and is_broken(exercise, residual, attempt.got, attempt.given, tolerance):
                sentences.append(f"{'Here ' if output.startswith('gradients') else ''}{holds}; that isn't so here.")
        sentences += [f"In {name}, {text}." for text in error_patterns(got, expected, tolerance)]
    return sentences


def only_wrong_output(attempt):
    """A sentence if only one of several outputs, or of a dict's entries, is wrong: what the others need is right."""
    if len(attempt.wrong) != 1 or len(attempt.problems) < 2:
        return []
    (name,) = attempt.wrong
    return [
        f"Only {name} is wrong. What it shares with the outputs that are right is right too, so the mistake is in "
        f"the steps that {name} has for itself."
    ]


def is_broken(exercise, residual, got, arguments, tolerance):
    """Whether an expression of these outputs and arguments isn't 0."""
    space = namespace(sources(exercise.right)) | dict(zip(exercise.arguments, arguments))
    for name, array in got.items():
        output, _, key = name.rstrip(']"').partition('["')
        space |= {output: {**space.get(output, {}), key: array} if key else array}
    try:
        return not np.abs(eval(residual, space)).max() <= 1e3 * tolerance
    except (ValueError, ArithmeticError):  # another output, of another shape, stands in it
        return False


def error_patterns(got, right, tolerance):
    """Along which axis the error is the same, or a factor, or where it occurs at all."""
    error = got - right
    wrong = np.abs(error) > tolerance * np.maximum(1, np.abs(right))
    for axis, size in enumerate(got.shape):
        others = tuple(other for other in range(got.ndim) if other != axis)
        hit = wrong.any(others) if others else wrong
        if size > 1 and not hit.all():
            ranges = index_ranges(np.flatnonzero(hit))
            yield f"all that is wrong is at index {ranges} of axis {axis}, {hit.sum()} of {size}"
            return
    for axis, size in enumerate(got.shape):
        if size > 1 and agree(error, np.broadcast_to(error.mean(axis, keepdims=True), error.shape), tolerance):
            yield f"the error is the same along axis {axis}: a term that is constant along it is missing or too much"
            return
    ratio = got / right
    for axis, size in enumerate(got.shape):
        same = np.allclose(ratio, ratio.mean(axis, keepdims=True), rtol=1e-6, atol=0)  # NaN is not close to NaN
        if size > 1 and same and np.isfinite(ratio).all():
            yield f"what is wrong is a factor that is the same along axis {axis}, and varies along the others"
            return


def index_ranges(numbers):
    """Rising integers as text: `3, 5 to 7`; at most the first four runs of neighbours."""
    found = np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1)
    texts = [f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in found]
    return ", ".join(texts[:4] + ["…"] * (len(texts) > 4))
