"""The gradient of the layer norm."""

import numpy as np

from tinyvit import functional as F
from tinyvit.exercises.exercise import Exercise
from tinyvit.exercises.topics import layernorm


def inputs(random, B, N, D):
    x, weight, _, eps = layernorm.inputs(random, B, N, D)
    return random.standard_normal(x.shape), x, weight, eps


def right(dy, x, weight, eps):
    return F.layernorm_backward(dy, F.layernorm(x, weight, np.zeros_like(weight), eps)[1])


def mean_over(axis):
    return lambda g: g.mean(axis, keepdims=True)


row_mean = mean_over(-1)


def row_sum(g):
    return g.sum(-1, keepdims=True)


def nothing(g):
    return 0.0


def standard(var, eps):
    return (var + eps) ** -0.5


def eps_outside(var, eps):
    return 1 / (np.sqrt(var) + eps)


def rows_summed(g):
    return g.sum((0, 1))


def written(
    dy, x, weight, eps, axis=-1, ddof=0, rstd_of=standard, mean=row_mean, variance=row_mean, sign=-1,
    in_front="xhat", power=1, term_power=1, late=False, rows=rows_summed, dweight_of="xhat", weighted=False,
):  # fmt: skip
    """All three gradients, with a switch for each step.

    mean, variance   what goes back through each, of g, which is dy · weight
    sign, in_front   of the variance's term: which way it counts, and what its mean is multiplied with
    power            how many times 1/standard deviation stands in dx
    term_power       how many times it stands in the variance's term, which by hand is 1/σ³ · (x − mean) · mean(…)
    late             whether weight is multiplied last
    rows             the sum over what weight and bias were broadcast to
    """
    rstd = rstd_of(x.var(axis, ddof=ddof, keepdims=True), eps)
    xhat = (x - x.mean(axis, keepdims=True)) * rstd
    g = dy if late else dy * weight
    term = {"xhat": xhat * variance(g * xhat), "x": x * variance(g * x), "nothing": variance(g * xhat)}[in_front]
    dx = rstd**power * (g - mean(g) + sign * rstd ** (term_power - 1) * term) * (weight if late else 1)
    dweight = rows(dy * {"xhat": xhat, "x": x}[dweight_of] * (weight if weighted else 1))
    return dx, dweight, rows(dy)


BACKWARD = Exercise(
    "layernorm_backward",
    "The gradients of the layer norm y = x̂ · weight + bias, where x̂ = (x − mean) / √(variance + ε) row by row.",
    {"dy": "(B, N, D), the gradient of y", "x": "(B, N, D)", "weight": "(D,)", "eps": "ε, a number"},
    {"dx": "(B, N, D)", "dweight": "(D,)", "dbias": "(D,)"},
    right=right,
    shown=(F.layernorm_backward,),
    inputs=inputs,
    sizes=layernorm.SIZES,
    written=written,
)
EXERCISES = (BACKWARD,)

# -- of dx --------------------------------------------------------------------------------------------------------

BACKWARD.variant(
    "the 1/N terms are missing",
    "Mean and standard deviation depend on the whole row: each entry of x changes every entry of x̂ through them. "
    "Each adds a term to dx, and each term has a mean over the row: 1/N times a sum over all N = D entries.",
    mean=nothing,
    variance=nothing,
)
BACKWARD.variant(
    "the mean's 1/N term is missing",
    "The gradient through the variance is there, the one through the mean is missing.",
    mean=nothing,
)
BACKWARD.variant(
    "the variance's 1/N term is missing",
    "The gradient through the mean is there, the one through the variance is missing.",
    variance=nothing,
)
BACKWARD.variant(
    "sums where the 1/N terms are means",
    "Both terms, through mean and variance, are divided by the row's length.",
    mean=row_sum,
    variance=row_sum,
)
BACKWARD.variant(
    "a sum where the mean's 1/N term is a mean",
    "The term through the variance is divided by the row's length, and so is this.",
    mean=row_sum,
)
BACKWARD.variant(
    "a sum where the variance's 1/N term is a mean",
    "The term through the mean is divided by the row's length, and so is this.",
    variance=row_sum,
)
BACKWARD.variant(
    "the variance's 1/N term is added",
    "The larger the variance, the smaller x̂: its term is subtracted, as the mean's term is.",
    sign=1,
)
BACKWARD.variant(
    "x̂ is forgotten in front of the variance's 1/N term",
    "The derivative of the variance is proportional to an entry's distance from the mean: multiply by x̂.",
    in_front="nothing",
)
BACKWARD.variant(
    "x in place of x̂ in the variance's term",
    "Derive it in terms of x̂, the normalised x; x itself does not occur in it.",
    in_front="x",
)
BACKWARD.variant(
    "1/standard deviation occurs twice",
    "x̂ divides by the standard deviation once, and so does the gradient.",
    power=2,
)
BACKWARD.variant(
    "σ² where the variance's term has σ³",
    "The derivative of (variance + ε)^(−1/2) is −1/2 · (variance + ε)^(−3/2): the root's power 3, 1/σ³.",
    term_power=0,
)
BACKWARD.variant(
    "σ⁴ where the variance's term has σ³",
    "The derivative of (variance + ε)^(−1/2) is −1/2 · (variance + ε)^(−3/2): the root's power 3, 1/σ³.",
    term_power=2,
)
BACKWARD.variant(
    "1/standard deviation is forgotten",
    "x̂ divides by the standard deviation, and so does the gradient.",
    power=0,
)
BACKWARD.variant(
    "weight is multiplied too late", "dy is multiplied by weight before the means are taken, not after them.", late=True
)


@BACKWARD.misreading(
    "weight is forgotten in dx", "y is x̂ times weight, so the gradient of x̂ is dy times weight.", outputs=("dx",)
)
def weight_forgotten(dy, x, weight, eps):
    return dy, x, np.ones_like(weight), eps


EACH_ROW = "Each row has its own two means, over its D numbers: axis=-1, with keepdims=True."
BACKWARD.variant("means over the tokens' axis", EACH_ROW, mean=mean_over(1), variance=mean_over(1))
BACKWARD.variant("means over the batch's axis", EACH_ROW, mean=mean_over(0), variance=mean_over(0))
BACKWARD.variant("means over tokens and numbers", EACH_ROW, mean=mean_over((1, 2)), variance=mean_over((1, 2)))
BACKWARD.variant("means over the whole array", EACH_ROW, mean=mean_over(None), variance=mean_over(None))

# -- of all of them -----------------------------------------------------------------------------------------------

BACKWARD.variant(
    "everything is normalised over the tokens' axis",
    "Mean, variance and both terms of dx go over the last axis.",
    axis=1,
    mean=mean_over(1),
    variance=mean_over(1),
)
BACKWARD.variant(
    "everything is normalised over tokens and numbers",
    "Mean, variance and both terms of dx go over the last axis.",
    axis=(1, 2),
    mean=mean_over((1, 2)),
    variance=mean_over((1, 2)),
)
BACKWARD.variant(
    "x is normalised over the tokens' axis", "Each row has its own mean and variance, over its D numbers.", axis=1
)
BACKWARD.variant(
    "the sample variance",
    "The variance of a layer norm is the mean of (x − mean)²: divided by D, not by D − 1.",
    ddof=1,
)
BACKWARD.variant(
    "ε outside of the square root", "ε belongs to the variance, under the root: √(variance + ε).", rstd_of=eps_outside
)


@BACKWARD.misreading("ε is forgotten", "It was added to the variance in the forward.")
def without_eps(dy, x, weight, eps):
    return dy, x, weight, 0.0


# -- of dweight and dbias -----------------------------------------------------------------------------------------

BACKWARD.variant("x in place of x̂ in dweight", "weight was multiplied with the normalised x.", dweight_of="x")
BACKWARD.variant(
    "the broadcast weight and bias are not summed",
    "All rows share both, so their gradients are sums over all axes but the last.",
    rows=lambda g: g,
)
BACKWARD.variant(
    "the broadcast weight and bias are summed over samples only",
    "All tokens of all samples share both: sum over all axes but the last.",
    rows=lambda g: g.sum(0),
)
BACKWARD.variant(
    "the gradients of weight and bias are means",
    "Both get the sum of the gradients of all rows; there was no 1/N in the forward.",
    rows=lambda g: g.mean((0, 1)),
)
BACKWARD.variant(
    "weight stands in its own gradient", "y is linear in weight: its gradient does not depend on it.", weighted=True
)
