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


def softmax_over(x, axis, shift=0.0):
    exps = np.exp(x - shift)
    return exps / exps.sum(axis, keepdims=True)


OVERFLOW = (
    "the row's maximum is not subtracted",
    "exp(1000) overflows and exp(−1000) is 0: the result is NaN. Subtracting the row's own maximum from it "
    "changes nothing on paper, since it cancels, and keeps every exp between 0 and 1.",
)
ONE_MAXIMUM = (
    "one maximum for all rows",
    "A row far below the maximum of all others becomes zeros, and 0/0 is NaN. Each row has its own maximum.",
)


@FORWARD.mistake(*OVERFLOW)
def without_maximum(x):
    return softmax_over(x, -1)


@FORWARD.mistake(*ONE_MAXIMUM)
def one_maximum(x):
    return softmax_over(x, -1, x.max())


@FORWARD.misreading("the exponent's sign is wrong", "The higher a score, the higher its probability: exp(x − max).")
def exponent_negated(x):
    return (-x,)


@FORWARD.mistake(
    "the maximum of each column", "It cancels only if all of a row get the same one: the maximum over the last axis."
)
def maximum_of_columns(x):
    return softmax_over(x - x.max(0), -1)


@FORWARD.mistake("summed over the columns", "A row's probabilities add up to 1: the sum goes over the last axis.")
def over_columns(x):
    return softmax_over(x, 0)


@FORWARD.mistake("summed over the whole array", "Every row has a sum of its own: axis=-1, with keepdims=True.")
def over_everything(x):
    return softmax_over(x, None)


@FORWARD.mistake(
    "not divided by the sum", "The exponentials of a row are not yet probabilities: they don't add up to 1."
)
def not_normalised(x):
    return np.exp(x - x.max(-1, keepdims=True))


@FORWARD.mistake(
    "not divided by the sum", "The exponentials of a row are not yet probabilities: they don't add up to 1."
)
def exponentials(x):
    return np.exp(x)


@FORWARD.mistake("the logarithm of the softmax", "These are log probabilities; return the probabilities.")
def log_softmax(x):
    return np.log(F.softmax(x)[0])


@FORWARD.mistake("scores divided by their sum", "Without exp, negative scores give negative probabilities.")
def without_exp(x):
    return x / x.sum(-1, keepdims=True)


@BACKWARD.mistake(*OVERFLOW)
def without_maximum_backward(dy, x):
    return gradient(dy, softmax_over(x, -1))


@BACKWARD.mistake(*ONE_MAXIMUM)
def one_maximum_backward(dy, x):
    return gradient(dy, softmax_over(x, -1, x.max()))


def gradient(dy, probs):
    return probs * (dy - (dy * probs).sum(-1, keepdims=True))


@BACKWARD.mistake(
    "the Jacobian is taken as diagonal",
    "p(1 − p) is how a probability moves with its own score. But each score moves all the probabilities of its row, "
    "through the sum that they are divided by: the Jacobian is a full matrix.",
)
def diagonal(dy, x):
    probs = F.softmax(x)[0]
    return dy * probs * (1 - probs)


@BACKWARD.mistake(
    "the diagonal of the Jacobian is missing", "Only − p pᵀ is there; a probability also changes with its own score."
)
def without_diagonal(dy, x):
    probs = F.softmax(x)[0]
    return -probs * (dy * probs).sum(-1, keepdims=True)


@BACKWARD.mistake(
    "only dy times the probabilities",
    "That is the gradient of the numerator only; the sum in the denominator depends on x as well.",
)
def only_times_probs(dy, x):
    return dy * F.softmax(x)[0]


@BACKWARD.mistake(
    "the sum is not weighted by the probabilities", "You subtract Σ dy; weight each dy by its probability."
)
def unweighted(dy, x):
    return F.softmax(x)[0] * (dy - dy.sum(-1, keepdims=True))


@BACKWARD.mistake(
    "the sum is added", "The sum comes from the denominator: raising a score lowers all others. It is subtracted."
)
def sum_added(dy, x):
    probs = F.softmax(x)[0]
    return probs * (dy + (dy * probs).sum(-1, keepdims=True))


@BACKWARD.mistake(
    "the sum is not multiplied by the probabilities",
    "dy·p − Σ dy·p: the brackets are missing. Both terms have the factor p: p · (dy − Σ dy·p).",
)
def sum_outside_of_the_brackets(dy, x):
    probs = F.softmax(x)[0]
    return dy * probs - (dy * probs).sum(-1, keepdims=True)


@BACKWARD.misreading("dy and x are exchanged", "The arguments come in the order dy, x: first the gradient.")
def arguments_exchanged(dy, x):
    return x, dy


@BACKWARD.mistake(
    "a mean in place of the sum", "The probabilities are weights that add up to 1: don't divide by their number."
)
def mean_for_sum(dy, x):
    probs = F.softmax(x)[0]
    return probs * (dy - (dy * probs).mean(-1, keepdims=True))


@BACKWARD.mistake(
    "summed over the columns", "A score changes the probabilities of its own row: sum over the last axis."
)
def over_columns_backward(dy, x):
    probs = F.softmax(x)[0]
    return probs * (dy - (dy * probs).sum(0, keepdims=True))


@BACKWARD.mistake(
    "summed over the whole array", "A score changes the probabilities of its own row: axis=-1, with keepdims=True."
)
def over_everything_backward(dy, x):
    probs = F.softmax(x)[0]
    return probs * (dy - (dy * probs).sum())


@BACKWARD.mistake("not multiplied by the probabilities", "The brackets are right; multiply them by p.")
def not_multiplied(dy, x):
    return dy - (dy * F.softmax(x)[0]).sum(-1, keepdims=True)


@BACKWARD.mistake("scores in place of probabilities", "x holds the scores; take their softmax first.")
def scores_for_probs(dy, x):
    return gradient(dy, x)
