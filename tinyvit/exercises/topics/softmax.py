"""The softmax and its gradient."""

import numpy as np

from tinyvit import functional as F
from tinyvit.exercises.exercise import Case, Exercise


def inputs(random, **sizes):
    return (random.standard_normal(tuple(sizes.values())),)


def backward_inputs(random, **sizes):
    return *inputs(random, **sizes), *inputs(random, **sizes)


def large_scores(random):
    return (random.standard_normal((2, 5)) + np.array([[1000.0], [-1000.0]]),)


def large_scores_backward(random):
    return random.standard_normal((2, 5)), *large_scores(random)


SIZES = {"B": 3, "N": 4}, {"B": 1, "N": 7}
HEADS = {"B": 2, "H": 3, "M": 4, "N": 5}  # as in an attention
MORE_AXES = "scores of four dimensions"
FORWARD = Exercise(
    "softmax",
    "Turn every row of scores into probabilities: exp of each over the sum of exp over the row.",
    {"x": "(…, N), of any number of dimensions; rows lie along the last one"},
    {"probs": "(…, N)"},
    right=lambda x: F.softmax(x)[0],
    shown=(F.softmax,),
    inputs=inputs,
    sizes=SIZES,
    traps=(
        Case(MORE_AXES, lambda random: inputs(random, **HEADS)),
        Case("scores near 1000 and −1000", large_scores),
    ),
)
BACKWARD = Exercise(
    "softmax_backward",
    "The gradient of the softmax of every row.",
    {
        "dy": "(…, N), the gradient of the probabilities",
        "x": "(…, N), the scores, of any number of dimensions; rows lie along the last one",
    },
    {"dx": "(…, N)"},
    right=lambda dy, x: F.softmax_backward(dy, F.softmax(x)[1]),
    shown=(F.softmax, F.softmax_backward),
    inputs=backward_inputs,
    sizes=SIZES,
    traps=(
        Case(MORE_AXES, lambda random: backward_inputs(random, **HEADS)),
        Case("scores near 1000 and −1000", large_scores_backward),
    ),
)
EXERCISES = FORWARD, BACKWARD


OVERFLOW = (
    "the row's maximum is not subtracted",
    "exp(1000) overflows and exp(−1000) is 0: the result is NaN. Subtracting the row's own maximum from it "
    "changes nothing on paper, since it cancels, and keeps every exp between 0 and 1.",
)
ONE_MAXIMUM = (
    "one maximum for all rows",
    "A row far below the maximum of all others becomes zeros, and 0/0 is NaN. Each row has its own maximum.",
)
NOT_DIVIDED = "not divided by the sum", "The exponentials of a row are not yet probabilities: they don't add up to 1."
MAXIMUM = " - x.max(-1, keepdims=True)"

FORWARD.edit(*OVERFLOW, (MAXIMUM, ""))
FORWARD.edit(*ONE_MAXIMUM, ("x.max(-1, keepdims=True)", "x.max()"))
FORWARD.edit("the exponent's sign is wrong", "The higher a score, the higher its probability: exp(x − max).", "x = -x")
FORWARD.edit("the maximum of each column", "It cancels only if all of a row get the same one: the maximum over the "
    "last axis.", ("x.max(-1, keepdims=True)", "x.max(0)"))
FORWARD.edit("summed over the columns", "A row's probabilities add up to 1: the sum goes over the last axis.",
    ("-1", "0"))
FORWARD.edit("summed over the whole array", "Every row has a sum of its own: axis=-1, with keepdims=True.",
    ("-1, keepdims=True", ""))
FORWARD.edit(*NOT_DIVIDED, (" / exps.sum(-1, keepdims=True)", ""))
FORWARD.edit(*NOT_DIVIDED, (" / exps.sum(-1, keepdims=True)", ""), (MAXIMUM, ""))
FORWARD.edit("the logarithm of the softmax", "These are log probabilities; return the probabilities.",
    ("exps / exps.sum(-1, keepdims=True)", "np.log(exps / exps.sum(-1, keepdims=True))"))
FORWARD.edit("scores divided by their sum", "Without exp, negative scores give negative probabilities.",
    ("np.exp(x - x.max(-1, keepdims=True))", "x"))

DY_P = "(dy * probs).sum(-1, keepdims=True)"
BACKWARD.edit(*OVERFLOW, ("softmax(x)", "np.exp(x) / np.exp(x).sum(-1, keepdims=True)"))
BACKWARD.edit(*ONE_MAXIMUM, ("softmax(x)", "np.exp(x - x.max()) / np.exp(x - x.max()).sum(-1, keepdims=True)"))
BACKWARD.edit("the Jacobian is taken as diagonal", "p(1 − p) is how a probability moves with its own score. But each "
    "score moves all the probabilities of its row, through the sum that they are divided by: the Jacobian is a full "
    "matrix.", (f"(dy - {DY_P})", "dy * (1 - probs)"))
BACKWARD.edit("the diagonal of the Jacobian is missing", "Only − p pᵀ is there; a probability also changes with its "
    "own score.", ("(dy - ", "(0 - "))
BACKWARD.edit("only dy times the probabilities", "That is the gradient of the numerator only; the sum in the "
    "denominator depends on x as well.", (f" - {DY_P}", ""))
BACKWARD.edit("the sum is not weighted by the probabilities", "You subtract Σ dy; weight each dy by its probability.",
    ("(dy * probs)", "dy"))
BACKWARD.edit("the sum is added", "The sum comes from the denominator: raising a score lowers all others. It is "
    "subtracted.", ("(dy - ", "(dy + "))
BACKWARD.edit("the sum is not multiplied by the probabilities", "dy·p − Σ dy·p: the brackets are missing. Both terms "
    "have the factor p: p · (dy − Σ dy·p).", (f"(dy - {DY_P})", f"dy - {DY_P}"))
BACKWARD.edit("dy and x are exchanged", "The arguments come in the order dy, x: first the gradient.", "dy, x = x, dy")
BACKWARD.edit("a mean in place of the sum", "The probabilities are weights that add up to 1: don't divide by their "
    "number.", (".sum(-1", ".mean(-1"))
BACKWARD.edit("summed over the columns", "A score changes the probabilities of its own row: sum over the last axis.",
    ("-1", "0"))
BACKWARD.edit("summed over the whole array", "A score changes the probabilities of its own row: axis=-1, with "
    "keepdims=True.", ("-1, keepdims=True", ""))
BACKWARD.edit("not multiplied by the probabilities", "The brackets are right; multiply them by p.",
    ("probs * (dy", "(dy"))
BACKWARD.edit("scores in place of probabilities", "x holds the scores; take their softmax first.", ("softmax(x)", "x"))
