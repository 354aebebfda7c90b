"""Group normalisation and standardised weights, and their gradients."""

import numpy as np

from tinyvit import functional as F
from tinyvit.exercises.exercise import Exercise, visible_eps
from tinyvit.exercises.topics.batch_norm import per_channel, variance_of

PLACES = 0, 2, 3  # the axes along which weight and bias are broadcast


def inputs(random, B, C, H, W, G):
    weight, bias = 1 + random.standard_normal(C), random.standard_normal(C)
    return 0.5 + 2 * random.standard_normal((B, C, H, W)), weight, bias, G, visible_eps(random)


def backward_inputs(random, **sizes):
    x, weight, _, num_groups, eps = inputs(random, **sizes)
    return random.standard_normal(x.shape), x, weight, num_groups, eps


def in_groups(x, num_groups, interleaved=False):
    """x (B, C, H, W) as (B, G, C/G · H · W); interleaved: group g has the channels g, g + G, …"""
    if interleaved:
        x = x.reshape(len(x), -1, num_groups, *x.shape[2:]).swapaxes(1, 2)
    return x.reshape(len(x), num_groups, -1)


def back(groups, shape, interleaved=False):
    if interleaved:
        groups = groups.reshape(*groups.shape[:2], -1, *shape[2:]).swapaxes(1, 2)
    return groups.reshape(shape)


def group_norm(x, weight, bias, num_groups, eps, interleaved=False, axes=-1, ddof=0, outside=False, power=0.5):
    """The forward, with a switch for each step."""
    groups = in_groups(x, num_groups, interleaved)
    var = variance_of(groups, axes, ddof)
    divisor = var**0.5 + eps if outside else (var + eps) ** power
    xhat = back((groups - groups.mean(axes, keepdims=True)) / divisor, x.shape, interleaved)
    return xhat * per_channel(weight) + per_channel(bias)


def right(dy, x, weight, num_groups, eps):
    return F.group_norm_backward(dy, F.group_norm(x, weight, np.zeros_like(weight), num_groups, eps)[1])


def group_norm_backward(
    dy, x, weight, num_groups, eps, mean=True, variance=True, whole=False, power=1, late=False, of="xhat", rows=PLACES
):
    """All three gradients, with a switch for each step.

    mean, variance   whether something goes back through each
    whole            the two means in dx over the whole sample
    power            how many times 1/standard deviation stands in dx
    late             dx is multiplied by weight at the end, where the means were taken without it
    of               what dweight is made with
    rows             the axes that weight and bias were broadcast along
    """
    groups = in_groups(x, num_groups)
    rstd = (variance_of(groups, -1, 0) + eps) ** -0.5
    xhat = (groups - groups.mean(-1, keepdims=True)) * rstd
    g = in_groups(dy if late else dy * per_channel(weight), num_groups)
    axes = (1, 2) if whole else -1
    through_mean, through_variance = g.mean(axes, keepdims=True), xhat * (g * xhat).mean(axes, keepdims=True)
    dx = (rstd**power * (g - mean * through_mean - variance * through_variance)).reshape(x.shape)
    made_with = {"xhat": xhat.reshape(x.shape), "x": x, "nothing": 1}[of]
    return dx * (per_channel(weight) if late else 1), (dy * made_with).sum(rows), dy.sum(rows)


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
    written=group_norm,
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
    written=group_norm_backward,
)

FORWARD.variant(
    "every G-th channel in a group",
    "The channels of a group follow one another: reshape to (B, G, C/G · H · W), without a transpose.",
    interleaved=True,
)
FORWARD.variant("the statistics are over the batch, too", "No sample depends on another.", axes=(0, 2))
FORWARD.variant("the statistics are of the whole sample", "Each group has its own mean and variance.", axes=(1, 2))
FORWARD.variant("the sample variance", "The variance is divided by n, not by n − 1.", ddof=1)
FORWARD.variant(
    "ε outside of the square root", "ε belongs to the variance, under the root: √(variance + ε).", outside=True
)
FORWARD.variant("divided by the variance", "Divide by the standard deviation, the variance's square root.", power=1)


@FORWARD.misreading("each channel by itself", "The channels of a group share one mean and one variance.")
def channel_by_channel(x, weight, bias, num_groups, eps):
    return x, weight, bias, len(weight), eps


@FORWARD.misreading("ε is forgotten", "Without ε a group of equal numbers divides by zero.")
def without_eps(x, weight, bias, num_groups, eps):
    return x, weight, bias, num_groups, 0.0


@FORWARD.misreading("weight is forgotten", "Scale the normalised channels by weight.")
def without_weight(x, weight, bias, num_groups, eps):
    return x, np.ones_like(weight), bias, num_groups, eps


@FORWARD.misreading("bias is forgotten", "Add the bias after scaling.")
def without_bias(x, weight, bias, num_groups, eps):
    return x, weight, np.zeros_like(bias), num_groups, eps


BACKWARD.variant(
    "mean and variance taken as constants",
    "Each x moves the mean and the variance of its group, and through them all others.",
    mean=False, variance=False,
)  # fmt: skip
BACKWARD.variant(
    "the path through the mean is missing", "Each x is 1/n of its group's mean, which is subtracted.", mean=False
)
BACKWARD.variant(
    "the path through the variance is missing", "A larger x̂ also makes the standard deviation larger.", variance=False
)
BACKWARD.variant("the means in dx are of the whole sample", "They are of each group, as in the forward.", whole=True)
BACKWARD.variant("dx is not divided by the standard deviation", "x̂ is x, less its mean, times 1/σ: so is dx.", power=0)
BACKWARD.variant("dx is divided by the variance", "1/σ stands in dx once.", power=2)
BACKWARD.variant(
    "weight is multiplied last",
    "The channels of a group have different weights: the means in dx are of dy · weight, so weight comes first.",
    late=True,
)
BACKWARD.variant("dweight with x in place of x̂", "weight multiplies the normalised x.", of="x")
BACKWARD.variant("dweight without x̂", "weight multiplies x̂, so its gradient is the sum of dy times x̂.", of="nothing")
BACKWARD.variant(
    "the broadcast weight and bias are summed over the samples only", "All places share them: (0, 2, 3).", rows=0
)
BACKWARD.variant(
    "the broadcast weight and bias are summed over the places only", "All samples share them: (0, 2, 3).", rows=(2, 3)
)


# -- standardised weights ---------------------------------------------------------------------------------------------


def filters(random, O, C, P, Q):  # noqa: E741
    return 0.3 + random.standard_normal((O, C, P, Q)), visible_eps(random)


def filters_backward(random, **sizes):
    weight, eps = filters(random, **sizes)
    return random.standard_normal(weight.shape), weight, eps


ONE = 1, 2, 3  # the axes of a filter


def standardize(weight, eps, axes=ONE, ddof=0, outside=False, power=0.5, centred=True):
    """The forward, with a switch for each step."""
    var = variance_of(weight, axes, ddof)
    divisor = var**0.5 + eps if outside else (var + eps) ** power
    return (weight - (weight.mean(axes, keepdims=True) if centred else 0.0)) / divisor


def standardize_backward(dy, weight, eps, mean=True, variance=True, axes=ONE, power=1, ddof=0):
    rstd = (variance_of(weight, ONE, ddof) + eps) ** -0.5
    what = (weight - weight.mean(ONE, keepdims=True)) * rstd
    through_mean, through_variance = dy.mean(axes, keepdims=True), what * (dy * what).mean(axes, keepdims=True)
    return rstd**power * (dy - mean * through_mean - variance * through_variance)


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
    written=standardize,
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
    written=standardize_backward,
)
EXERCISES = FORWARD, BACKWARD, STANDARDIZE, STANDARDIZE_BACKWARD

for axes, name in (
    ((2, 3), "each channel of a filter by itself"), (0, "mean and variance over the filters"),
    ((0, 1, 2, 3), "mean and variance of all filters together"),
):  # fmt: skip
    STANDARDIZE.variant(name, "One mean and one variance for each filter, over its axes 1, 2 and 3.", axes=axes)
STANDARDIZE.variant("the sample variance", "The variance is divided by n = C·P·Q, not by n − 1.", ddof=1)
STANDARDIZE.variant(
    "ε outside of the square root",
    "That is the convention of BiT's published code. Here ε belongs to the variance: √(variance + ε).",
    outside=True,
)
STANDARDIZE.variant("divided by the variance", "Divide by the standard deviation, the variance's square root.", power=1)
STANDARDIZE.variant("the mean is not subtracted", "Each filter's mean becomes 0.", centred=False)


@STANDARDIZE.misreading("ε is forgotten", "Without ε a filter of equal numbers divides by zero.")
def filter_without_eps(weight, eps):
    return weight, 0.0


STANDARDIZE_BACKWARD.variant(
    "mean and variance taken as constants",
    "Each number moves the mean and the variance of its filter, and through them all others.",
    mean=False, variance=False,
)  # fmt: skip
STANDARDIZE_BACKWARD.variant(
    "the path through the mean is missing", "Each number is 1/n of its filter's mean, which is subtracted.", mean=False
)
STANDARDIZE_BACKWARD.variant(
    "the path through the variance is missing", "A larger ŵ also makes the standard deviation larger.", variance=False
)
STANDARDIZE_BACKWARD.variant(
    "the means are of each channel", "The forward's means are of each filter: the axes 1, 2 and 3.", axes=(2, 3)
)
STANDARDIZE_BACKWARD.variant(
    "not divided by the standard deviation", "ŵ is w, less its mean, times 1/σ: so is the gradient.", power=0
)
STANDARDIZE_BACKWARD.variant("divided by the variance", "1/σ stands in front once.", power=2)
STANDARDIZE_BACKWARD.variant("the sample variance", "The forward's variance is divided by n, not by n − 1.", ddof=1)
