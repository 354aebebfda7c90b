"""Group normalisation and standardised weights, and their gradients."""

import numpy as np

from tinyvit import functional as F
from tinyvit.exercises.exercise import Exercise, visible_eps


def inputs(random, B, C, H, W, G):
    weight, bias = 1 + random.standard_normal(C), random.standard_normal(C)
    return 0.5 + 2 * random.standard_normal((B, C, H, W)), weight, bias, G, visible_eps(random)


def backward_inputs(random, **sizes):
    x, weight, _, num_groups, eps = inputs(random, **sizes)
    return random.standard_normal(x.shape), x, weight, num_groups, eps


def right(dy, x, weight, num_groups, eps):
    return F.group_norm_backward(dy, F.group_norm(x, weight, np.zeros_like(weight), num_groups, eps)[1])


SIZES = {"B": 2, "C": 6, "H": 2, "W": 5, "G": 2}, {"B": 1, "C": 9, "H": 3, "W": 2, "G": 3}
X, CHANNELS, GROUPS, EPS = "(B, C, H, W)", "(C,)", "G, which divides C", "ε, a number"
FORWARD = Exercise(
    "group_norm",
    "Give every group of C/G channels that follow one another, of each sample, mean 0 and variance 1 (ε is added to "
    "the variance), scale each channel by weight and shift it by bias.",
    {"x": X, "weight": CHANNELS, "bias": CHANNELS, "num_groups": GROUPS, "eps": EPS},
    {"y": X},
    right=lambda *arguments: F.group_norm(*arguments)[0],
    shown=(F.group_norm,),
    inputs=inputs,
    sizes=SIZES,
)
BACKWARD = Exercise(
    "group_norm_backward",
    "The gradients of the group norm y = x̂ · weight + bias, where x̂ = (x − mean) / √(variance + ε) group by group.",
    {"dy": f"{X}, the gradient of y", "x": X, "weight": CHANNELS, "num_groups": GROUPS, "eps": EPS},
    {"dx": X, "dweight": CHANNELS, "dbias": CHANNELS},
    right=right,
    shown=(F.group_norm_backward,),
    inputs=backward_inputs,
    sizes=SIZES,
)

FORWARD.edit("every G-th channel in a group", "The channels of a group follow one another: reshape to (B, G, C/G · H · "
    "W), without a transpose.", ("num_groups, -1", "-1, num_groups, x[0, 0].size"), ("mean(-1", "mean((1, 3)"))
FORWARD.edit("the statistics are over the batch, too", "No sample depends on another.", ("mean(-1", "mean((0, 2)"))
FORWARD.edit("the statistics are of the whole sample", "Each group has its own mean and variance.",
    ("mean(-1", "mean((1, 2)"))
FORWARD.edit("the sample variance", "The variance is divided by n, not by n − 1.",
    ("(centred * centred).mean(", "groups.var(ddof=1, axis="))
FORWARD.edit("ε outside of the square root", "ε belongs to the variance, under the root: √(variance + ε).",
    ("(variance + eps) ** -0.5", "1 / (variance**0.5 + eps)"))
FORWARD.edit("divided by the variance", "Divide by the standard deviation, the variance's square root.", ("-0.5", "-1"))
FORWARD.edit("each channel by itself", "The channels of a group share one mean and one variance.",
    "num_groups = len(weight)")
FORWARD.edit("ε is forgotten", "Without ε a group of equal numbers divides by zero.", "eps = 0")
FORWARD.edit("weight is forgotten", "Scale the normalised channels by weight.", (" * weight[:, None, None]", ""))
FORWARD.edit("bias is forgotten", "Add the bias after scaling.", (" + bias[:, None, None]", ""))

BACKWARD.edit("mean and variance taken as constants", "Each x moves the mean and the variance of its group, and "
    "through them all others.", (" - mean_g - xhat * mean_gxhat", ""))
BACKWARD.edit("the path through the mean is missing", "Each x is 1/n of its group's mean, which is subtracted.",
    (" - mean_g ", " "))
BACKWARD.edit("the path through the variance is missing", "A larger x̂ also makes the standard deviation larger.",
    (" - xhat * mean_gxhat", ""))
BACKWARD.edit("the means in dx are of the whole sample", "They are of each group, as in the forward.",
    ("g.mean(-1", "g.mean((1, 2)"), ("xhat).mean(-1", "xhat).mean((1, 2)"))
BACKWARD.edit("dx is not divided by the standard deviation", "x̂ is x, less its mean, times 1/σ: so is dx.",
    ("dx = rstd * ", "dx = "))
BACKWARD.edit("dx is divided by the variance", "1/σ stands in dx once.", ("dx = rstd", "dx = rstd**2"))
BACKWARD.edit("weight is multiplied last", "The channels of a group have different weights: the means in dx are of dy "
    "· weight, so weight comes first.", ("dy * weight[:, None, None]", "dy"),
    ("dx.reshape(x.shape)", "weight[:, None, None] * dx.reshape(x.shape)"))
BACKWARD.edit("dweight with x in place of x̂", "weight multiplies the normalised x.",
    ("dy * xhat.reshape(x.shape)", "dy * x"))
BACKWARD.edit("dweight without x̂", "weight multiplies x̂, so its gradient is the sum of dy times x̂.",
    ("dy * xhat.reshape(x.shape)", "dy"))
BACKWARD.edit("the broadcast weight and bias are summed over the samples only", "All places share them: (0, 2, 3).",
    ("sum((0, 2, 3))", "sum(0)"))
BACKWARD.edit("the broadcast weight and bias are summed over the places only", "All samples share them: (0, 2, 3).",
    ("sum((0, 2, 3))", "sum((2, 3))"))


# -- standardised weights ---------------------------------------------------------------------------------------------


def filters(random, O, C, P, Q):  # noqa: E741
    return 0.3 + random.standard_normal((O, C, P, Q)), visible_eps(random)


def filters_backward(random, **sizes):
    weight, eps = filters(random, **sizes)
    return random.standard_normal(weight.shape), weight, eps


FILTER_SIZES = {"O": 4, "C": 3, "P": 2, "Q": 5}, {"O": 2, "C": 5, "P": 3, "Q": 3}
WEIGHT = "(O, C, P, Q)"
STANDARDIZE = Exercise(
    "standardize_weight",
    "Give every filter mean 0 and variance 1 over its C·P·Q numbers; ε is added to the variance.",
    {"weight": WEIGHT, "eps": EPS},
    {"standardized": WEIGHT},
    right=lambda *arguments: F.standardize_weight(*arguments)[0],
    shown=(F.standardize_weight,),
    inputs=filters,
    sizes=FILTER_SIZES,
)
STANDARDIZE_BACKWARD = Exercise(
    "standardize_weight_backward",
    "The gradient of filters that were standardised: ŵ = (w − mean) / √(variance + ε), filter by filter.",
    {"dy": f"{WEIGHT}, the gradient of ŵ", "weight": f"w, {WEIGHT}", "eps": EPS},
    {"dweight": WEIGHT},
    right=lambda dy, weight, eps: F.standardize_weight_backward(dy, F.standardize_weight(weight, eps)[1]),
    shown=(F.standardize_weight_backward,),
    inputs=filters_backward,
    sizes=FILTER_SIZES,
)
EXERCISES = FORWARD, BACKWARD, STANDARDIZE, STANDARDIZE_BACKWARD

OF_A_FILTER = "One mean and one variance for each filter, over its axes 1, 2 and 3."
SAMPLE_VARIANCE = "(centred * centred).mean(axes, keepdims=True)", "weight.var(axes, ddof=1, keepdims=True)"
MEANS = "dy.mean(axes, keepdims=True), (dy * what).mean(axes, keepdims=True)"

STANDARDIZE.edit("each channel of a filter by itself", OF_A_FILTER, ("1, 2, 3", "2, 3"))
STANDARDIZE.edit("mean and variance over the filters", OF_A_FILTER, ("1, 2, 3", "0"))
STANDARDIZE.edit("mean and variance of all filters together", OF_A_FILTER, ("1, 2, 3", "None"))
STANDARDIZE.edit("the sample variance", "The variance is divided by n = C·P·Q, not by n − 1.", SAMPLE_VARIANCE)
STANDARDIZE.edit("ε outside of the square root", "That is the convention of BiT's published code. Here ε belongs to "
    "the variance: √(variance + ε).", ("(variance + eps) ** -0.5", "1 / (variance**0.5 + eps)"))
STANDARDIZE.edit("divided by the variance", "Divide by the standard deviation, the variance's square root.",
    ("-0.5", "-1"))
STANDARDIZE.edit("the mean is not subtracted", "Each filter's mean becomes 0.", ("return centred", "return weight"))
STANDARDIZE.edit("ε is forgotten", "Without ε a filter of equal numbers divides by zero.", "eps = 0")

STANDARDIZE_BACKWARD.edit("mean and variance taken as constants", "Each number moves the mean and the variance of its "
    "filter, and through them all others.", (" - mean_dy - what * mean_dywhat", ""))
STANDARDIZE_BACKWARD.edit("the path through the mean is missing", "Each number is 1/n of its filter's mean, which is "
    "subtracted.", (" - mean_dy ", " "))
STANDARDIZE_BACKWARD.edit("the path through the variance is missing", "A larger ŵ also makes the standard deviation "
    "larger.", (" - what * mean_dywhat", ""))
STANDARDIZE_BACKWARD.edit("the means are of each channel", "The forward's means are of each filter: the axes 1, 2 and "
    "3.", (MEANS, MEANS.replace("axes", "(2, 3)")))
STANDARDIZE_BACKWARD.edit("not divided by the standard deviation", "ŵ is w, less its mean, times 1/σ: so is the "
    "gradient.", ("return rstd * ", "return "))
STANDARDIZE_BACKWARD.edit("divided by the variance", "1/σ stands in front once.", ("return rstd", "return rstd**2"))
STANDARDIZE_BACKWARD.edit("the sample variance", "The forward's variance is divided by n, not by n − 1.",
    SAMPLE_VARIANCE)
