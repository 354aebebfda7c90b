"""The RMS norm and its gradient, which the package itself doesn't use."""

import numpy as np

from tinyvit.exercises.exercise import Exercise, visible_eps


def inputs(random, B, N, D):
    return 0.5 + 2 * random.standard_normal((B, N, D)), 1 + random.standard_normal(D), visible_eps(random)


def backward_inputs(random, B, N, D):
    x, weight, eps = inputs(random, B, N, D)
    return random.standard_normal(x.shape), x, weight, eps


def row_mean(x):
    return x.mean(-1, keepdims=True)


def rmsnorm(x, weight, eps):
    rrms = (row_mean(x * x) + eps) ** -0.5                                   # 1 / root mean square
    return x * rrms * weight


def rmsnorm_backward(dy, x, weight, eps):
    rrms = (row_mean(x * x) + eps) ** -0.5
    xhat, g = x * rrms, dy * weight
    dx = rrms * (g - xhat * row_mean(g * xhat))
    return dx, (dy * xhat).sum((0, 1))


SIZES = {"B": 2, "N": 3, "D": 5}, {"B": 1, "N": 4, "D": 7}
FORWARD = Exercise(
    "rmsnorm",
    "Divide every row of x by its root mean square, √(mean(x²) + ε), and scale it by weight (Zhang & Sennrich 2019).",
    {"x": "(B, N, D)", "weight": "(D,)", "eps": "ε, a number"},
    {"y": "(B, N, D)"},
    right=rmsnorm,
    shown=(rmsnorm,),
    inputs=inputs,
    sizes=SIZES,
)
BACKWARD = Exercise(
    "rmsnorm_backward",
    "The gradients of the RMS norm y = x̂ · weight, where x̂ = x / √(mean(x²) + ε) row by row.",
    {"dy": "(B, N, D), the gradient of y", "x": "(B, N, D)", "weight": "(D,)", "eps": "ε, a number"},
    {"dx": "(B, N, D)", "dweight": "(D,)"},
    right=rmsnorm_backward,
    shown=(rmsnorm_backward,),
    inputs=backward_inputs,
    sizes=SIZES,
)
EXERCISES = FORWARD, BACKWARD


@FORWARD.mistake("a layer norm", "An RMS norm leaves the mean alone: it divides by √mean(x²).")
def layer_norm(x, weight, eps):
    return (x - row_mean(x)) / np.sqrt(x.var(-1, keepdims=True) + eps) * weight


@FORWARD.mistake(
    "divided by the standard deviation", "The root mean square is that of x, without subtracting the mean."
)
def by_deviation(x, weight, eps):
    return x / np.sqrt(x.var(-1, keepdims=True) + eps) * weight


@FORWARD.mistake("the square root is forgotten", "Divide by the root of the mean square.")
def without_root(x, weight, eps):
    return x / (row_mean(x * x) + eps) * weight


@FORWARD.mistake("the sum of squares, not their mean", "It is the root of the mean: divided by D.")
def norm_of_rows(x, weight, eps):
    return x / np.sqrt((x * x).sum(-1, keepdims=True) + eps) * weight


@FORWARD.mistake("ε outside of the square root", "ε belongs to the mean square, under the root.")
def eps_outside(x, weight, eps):
    return x / (np.sqrt(row_mean(x * x)) + eps) * weight


@FORWARD.misreading("ε is forgotten", "Without ε a row of zeros divides by zero.")
def without_eps(x, weight, eps):
    return x, weight, 0.0


@FORWARD.misreading("weight is forgotten", "Scale the normalised rows by weight.")
def without_weight(x, weight, eps):
    return x, np.ones_like(weight), eps


# -- backward -----------------------------------------------------------------------------------------------------


def parts(dy, x, weight, eps):
    """g, x̂ and 1/root mean square."""
    rrms = (row_mean(x * x) + eps) ** -0.5
    return dy * weight, x * rrms, rrms


@BACKWARD.mistake(
    "the 1/N term is missing",
    "The root mean square depends on the whole row: each entry of x changes every entry of x̂ through it. This adds a "
    "term to dx that has a mean over the row.",
)
def without_mean_term(dy, x, weight, eps):
    g, _, rrms = parts(dy, x, weight, eps)
    return {"dx": rrms * g}


@BACKWARD.mistake(
    "the mean of a layer norm is still subtracted",
    "The forward subtracts no mean, so that term is absent from the backward: only one of the two means is left.",
)
def of_a_layer_norm(dy, x, weight, eps):
    g, xhat, rrms = parts(dy, x, weight, eps)
    return {"dx": rrms * (g - row_mean(g) - xhat * row_mean(g * xhat))}


@BACKWARD.mistake(
    "the wrong one of a layer norm's two means is left", "The one that came through the variance is left, with x̂ twice."
)
def the_other_mean(dy, x, weight, eps):
    g, _, rrms = parts(dy, x, weight, eps)
    return {"dx": rrms * (g - row_mean(g))}


@BACKWARD.mistake("a sum where the 1/N term is a mean", "The term is divided by the row's length.")
def sum_for_mean(dy, x, weight, eps):
    g, xhat, rrms = parts(dy, x, weight, eps)
    return {"dx": rrms * (g - xhat * (g * xhat).sum(-1, keepdims=True))}


@BACKWARD.mistake("the 1/N term is added", "The larger the root mean square, the smaller x̂: the term is subtracted.")
def added(dy, x, weight, eps):
    g, xhat, rrms = parts(dy, x, weight, eps)
    return {"dx": rrms * (g + xhat * row_mean(g * xhat))}


@BACKWARD.mistake(
    "x̂ is forgotten in front of the 1/N term", "The derivative of the mean square is proportional to the entry itself."
)
def xhat_forgotten(dy, x, weight, eps):
    g, xhat, rrms = parts(dy, x, weight, eps)
    return {"dx": rrms * (g - row_mean(g * xhat))}


@BACKWARD.mistake("x in place of x̂ in the 1/N term", "Derive it in terms of x̂, the normalised x.")
def x_for_xhat(dy, x, weight, eps):
    g, _, rrms = parts(dy, x, weight, eps)
    return {"dx": rrms * (g - x * row_mean(g * x))}


@BACKWARD.mistake("1/root mean square is forgotten", "x̂ divides by the root mean square, and so does the gradient.")
def without_rrms(dy, x, weight, eps):
    g, xhat, _ = parts(dy, x, weight, eps)
    return {"dx": g - xhat * row_mean(g * xhat)}


@BACKWARD.misreading("weight is forgotten in dx", "The gradient of x̂ is dy times weight.", outputs=("dx",))
def weight_forgotten(dy, x, weight, eps):
    return dy, x, np.ones_like(weight), eps


@BACKWARD.misreading("ε is forgotten", "It was added to the mean square in the forward.")
def without_eps_backward(dy, x, weight, eps):
    return dy, x, weight, 0.0


@BACKWARD.mistake("x in place of x̂ in dweight", "weight was multiplied with the normalised x.")
def x_in_dweight(dy, x, weight, eps):
    return {"dweight": (dy * x).sum((0, 1))}


@BACKWARD.mistake("the broadcast weight is not summed", "All rows share it, so its gradient is a sum over all rows.")
def not_summed(dy, x, weight, eps):
    return {"dweight": dy * parts(dy, x, weight, eps)[1]}


@BACKWARD.mistake("the broadcast weight is summed over samples only", "All tokens of all samples share it.")
def summed_over_samples(dy, x, weight, eps):
    return {"dweight": (dy * parts(dy, x, weight, eps)[1]).sum(0)}


@BACKWARD.mistake("dweight is a mean", "The weight gets the sum of the gradients of all rows.")
def mean_for_sum(dy, x, weight, eps):
    return {"dweight": (dy * parts(dy, x, weight, eps)[1]).mean((0, 1))}
