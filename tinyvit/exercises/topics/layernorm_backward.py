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


BACKWARD = Exercise(
    "layernorm_backward",
    "The gradients of the layer norm y = x̂ · weight + bias, where x̂ = (x − mean) / √(variance + ε) row by row.",
    {"dy": "(B, N, D), the gradient of y", "x": "(B, N, D)", "weight": "(D,)", "eps": "ε, a number"},
    {"dx": "(B, N, D)", "dweight": "(D,)", "dbias": "(D,)"},
    right=right,
    shown=(F.layernorm_backward,),
    inputs=inputs,
    sizes=layernorm.SIZES,
)
EXERCISES = (BACKWARD,)


# -- of dx --------------------------------------------------------------------------------------------------------

MEANS = "g.mean(-1, keepdims=True), (g * xhat).mean(-1, keepdims=True)"
CUBED = "The derivative of (variance + ε)^(−1/2) is −1/2 · (variance + ε)^(−3/2): the root's power 3, 1/σ³."
EACH_ROW = "Each row has its own two means, over its D numbers: axis=-1, with keepdims=True."

BACKWARD.edit("the 1/N terms are missing", "Mean and standard deviation depend on the whole row: each entry of x "
    "changes every entry of x̂ through them. Each adds a term to dx, and each term has a mean over the row: 1/N times "
    "a sum over all N = D entries.", (" - mean_g - xhat * mean_gxhat", ""))
BACKWARD.edit("the mean's 1/N term is missing", "The gradient through the variance is there, the one through the mean "
    "is missing.", (" - mean_g ", " "))
BACKWARD.edit("the variance's 1/N term is missing", "The gradient through the mean is there, the one through the "
    "variance is missing.", (" - xhat * mean_gxhat", ""))
BACKWARD.edit("sums where the 1/N terms are means", "Both terms, through mean and variance, are divided by the row's "
    "length.", (MEANS, MEANS.replace("mean", "sum")))
BACKWARD.edit("a sum where the mean's 1/N term is a mean", "The term through the variance is divided by the row's "
    "length, and so is this.", ("g.mean(-1", "g.sum(-1"))
BACKWARD.edit("a sum where the variance's 1/N term is a mean", "The term through the mean is divided by the row's "
    "length, and so is this.", ("xhat).mean(-1", "xhat).sum(-1"))
BACKWARD.edit("the variance's 1/N term is added", "The larger the variance, the smaller x̂: its term is subtracted, as "
    "the mean's term is.", ("- xhat", "+ xhat"))
BACKWARD.edit("x̂ is forgotten in front of the variance's 1/N term", "The derivative of the variance is proportional "
    "to an entry's distance from the mean: multiply by x̂.", ("- xhat * mean_gxhat", "- mean_gxhat"))
BACKWARD.edit("x in place of x̂ in the variance's term", "Derive it in terms of x̂, the normalised x; x itself does "
    "not occur in it.", ("(g * xhat)", "(g * x)"), ("- xhat", "- x"))
BACKWARD.edit("1/standard deviation occurs twice", "x̂ divides by the standard deviation once, and so does the "
    "gradient.", ("dx = rstd", "dx = rstd**2"))
BACKWARD.edit("σ² where the variance's term has σ³", CUBED, ("- xhat", "- xhat / rstd"))
BACKWARD.edit("σ⁴ where the variance's term has σ³", CUBED, ("- xhat", "- xhat * rstd"))
BACKWARD.edit("1/standard deviation is forgotten", "x̂ divides by the standard deviation, and so does the gradient.",
    ("dx = rstd * ", "dx = "))
BACKWARD.edit("weight is multiplied too late", "dy is multiplied by weight before the means are taken, not after them.",
    ("dy * weight", "dy"), ("dx = rstd", "dx = weight * rstd"))
BACKWARD.edit("weight is forgotten in dx", "y is x̂ times weight, so the gradient of x̂ is dy times weight.",
    ("dy * weight", "dy"))
for where, axis in (("the tokens' axis", 1), ("the batch's axis", 0), ("tokens and numbers", (1, 2))):
    BACKWARD.edit(f"means over {where}", EACH_ROW, (MEANS, MEANS.replace("-1", str(axis))))
BACKWARD.edit("means over the whole array", EACH_ROW, (MEANS, MEANS.replace("-1", "None")))

# -- of all of them -----------------------------------------------------------------------------------------------

LAST_AXIS = "Mean, variance and both terms of dx go over the last axis."
BACKWARD.edit("everything is normalised over the tokens' axis", LAST_AXIS, ("mean(-1", "mean(1"))
BACKWARD.edit("everything is normalised over tokens and numbers", LAST_AXIS, ("mean(-1", "mean((1, 2)"))
BACKWARD.edit("x is normalised over the tokens' axis", "Each row has its own mean and variance, over its D numbers.",
    ("x.mean(-1", "x.mean(1"), ("centred).mean(-1", "centred).mean(1"))
BACKWARD.edit("the sample variance", "The variance of a layer norm is the mean of (x − mean)²: divided by D, not by D "
    "− 1.", ("(centred * centred).mean(-1, keepdims=True)", "x.var(-1, ddof=1, keepdims=True)"))
BACKWARD.edit("ε outside of the square root", "ε belongs to the variance, under the root: √(variance + ε).",
    ("((centred * centred).mean(-1, keepdims=True) + eps) ** -0.5", "1 / (x.std(-1, keepdims=True) + eps)"))
BACKWARD.edit("ε is forgotten", "It was added to the variance in the forward.", "eps = 0")

# -- of dweight and dbias -----------------------------------------------------------------------------------------

BACKWARD.edit("x in place of x̂ in dweight", "weight was multiplied with the normalised x.", ("dy * xhat", "dy * x"))
BACKWARD.edit("the broadcast weight and bias are not summed", "All rows share both, so their gradients are sums over "
    "all axes but the last.", (".sum(rows)", ""))
BACKWARD.edit("the broadcast weight and bias are summed over samples only", "All tokens of all samples share both: sum "
    "over all axes but the last.", ("sum(rows)", "sum(0)"))
BACKWARD.edit("the gradients of weight and bias are means", "Both get the sum of the gradients of all rows; there was "
    "no 1/N in the forward.", ("sum(rows)", "mean(rows)"))
BACKWARD.edit("weight stands in its own gradient", "y is linear in weight: its gradient does not depend on it.",
    ("dy * xhat", "dy * xhat * weight"))
