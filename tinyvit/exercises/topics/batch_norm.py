"""Batch normalisation in training, its gradients and its running statistics."""

import numpy as np

from tinyvit import functional as F
from tinyvit.exercises.exercise import Exercise, visible_eps

BATCH = 0, 2, 3  # the axes that a channel's mean is over


def inputs(random, B, C, H, W):
    weight, bias = 1 + random.standard_normal(C), random.standard_normal(C)
    return 0.5 + 2 * random.standard_normal((B, C, H, W)), weight, bias, visible_eps(random)


def backward_inputs(random, B, C, H, W):
    x, weight, _, eps = inputs(random, B, C, H, W)
    return random.standard_normal(x.shape), x, weight, eps


def running_inputs(random, B, C, H, W):
    x, mean, _, momentum = inputs(random, B, C, H, W)
    return x, mean, random.uniform(0.5, 2, C), momentum


def per_channel(values):
    return values[:, None, None]


def variance_of(x, axes, ddof):
    """The variance, divided by n − ddof; where that is 0, NaN or infinite without NumPy's warning."""
    centred = x - x.mean(axes, keepdims=True)
    squares = (centred * centred).sum(axes, keepdims=True)
    return squares / np.float64(x.size // squares.size - ddof)


def batch_norm(x, weight, bias, eps, axes=BATCH, ddof=0, outside=False, power=0.5, centred=True):
    """The forward, with a switch for each step."""
    var = variance_of(x, axes, ddof)
    divisor = var**0.5 + eps if outside else (var + eps) ** power
    centre = x.mean(axes, keepdims=True) if centred else 0.0
    return (x - centre) / divisor * per_channel(weight) + per_channel(bias)


def right(dy, x, weight, eps):
    return F.batch_norm_backward(dy, F.batch_norm(x, weight, np.zeros_like(weight), eps)[1])


def batch_norm_backward(
    dy, x, weight, eps, mean=True, variance=True, axes=BATCH, ddof=0, power=1, scaled=True, of="xhat", rows=BATCH
):
    """All three gradients, with a switch for each step.

    mean, variance   whether something goes back through each
    axes             those of the two means in dx
    ddof             1: the forward with the unbiased variance
    power            how many times 1/standard deviation stands in dx
    scaled           whether dx is multiplied by weight
    of               what dweight is made with
    rows             the axes that weight and bias were broadcast along
    """
    rstd = (variance_of(x, BATCH, ddof) + eps) ** -0.5
    centred = x - x.mean(BATCH, keepdims=True)
    xhat = centred * rstd
    through_mean, through_variance = dy.mean(axes, keepdims=True), xhat * (dy * xhat).mean(axes, keepdims=True)
    dx = rstd**power * (dy - mean * through_mean - variance * through_variance) * (per_channel(weight) if scaled else 1)
    return dx, (dy * {"xhat": xhat, "x": x, "centred": centred, "nothing": 1}[of]).sum(rows), dy.sum(rows)


def running_statistics(x, running_mean, running_variance, momentum, ddof=1, exchanged=False, power=1):
    """Both statistics after a step, with a switch for each."""
    new, keep = (1 - momentum, momentum) if exchanged else (momentum, 1 - momentum)
    variance = variance_of(x, BATCH, ddof).reshape(-1) ** power
    return keep * running_mean + new * x.mean(BATCH), keep * running_variance + new * variance


SIZES = {"B": 3, "C": 4, "H": 2, "W": 5}, {"B": 1, "C": 2, "H": 4, "W": 3}
X, CHANNELS, EPS = "(B, C, H, W)", "(C,)", "ε, a number"
FORWARD = Exercise(
    "batch_norm",
    "Give every channel of x mean 0 and variance 1 over the batch, its samples and places (ε is added to the "
    "variance), scale it by weight and shift it by bias.",
    {"x": X, "weight": CHANNELS, "bias": CHANNELS, "eps": EPS},
    {"y": X},
    right=lambda *arguments: F.batch_norm(*arguments)[0],
    shown=(F.batch_norm,),
    inputs=inputs,
    sizes=SIZES,
    written=batch_norm,
)
BACKWARD = Exercise(
    "batch_norm_backward",
    "The gradients of the batch norm y = x̂ · weight + bias, where x̂ = (x − mean) / √(variance + ε) channel by channel, "
    "with the mean and variance over samples and places.",
    {"dy": f"{X}, the gradient of y", "x": X, "weight": CHANNELS, "eps": EPS},
    {"dx": X, "dweight": CHANNELS, "dbias": CHANNELS},
    right=right,
    shown=(F.batch_norm_backward,),
    inputs=backward_inputs,
    sizes=SIZES,
    written=batch_norm_backward,
)
RUNNING = Exercise(
    "running_statistics",
    "Move the running mean and variance of a batch norm by `momentum` towards those of the batch x, of which the "
    "variance is unbiased: divided by n − 1, where n = B·H·W.",
    {
        "x": X,
        "running_mean": "(C,), before the step",
        "running_variance": "(C,), before the step",
        "momentum": "a number from 0 to 1, the share of the new one",
    },
    {"running_mean": "(C,), after it", "running_variance": "(C,), after it"},
    right=running_statistics,
    shown=(F.batch_norm,),
    inputs=running_inputs,
    sizes=(SIZES[0], {"B": 2, "C": 1, "H": 4, "W": 3}),
    written=running_statistics,
)
EXERCISES = FORWARD, BACKWARD, RUNNING

FORWARD.variant(
    "the sample variance",
    "A batch norm divides by √(variance + ε) with the mean of (x − mean)²: divided by n, not by n − 1, which only the "
    "running variance is.",
    ddof=1,
)
FORWARD.variant("ε outside of the square root", "ε belongs to the variance, under the root.", outside=True)
FORWARD.variant("divided by the variance", "Divide by the standard deviation, the variance's square root.", power=1)
FORWARD.variant(
    "mean and variance over the samples only",
    "A channel's filter is the same at all places, and so is its mean: over samples and places, axes (0, 2, 3).",
    axes=0,
)
FORWARD.variant(
    "mean and variance of each sample alone",
    "That is an instance norm. A batch norm's mean is over the samples too, axes (0, 2, 3).",
    axes=(2, 3),
)
FORWARD.variant("a layer norm", "A batch norm has a mean for each channel, over the axes (0, 2, 3).", axes=(1, 2, 3))
FORWARD.variant("mean and variance over the channels", "Every channel has its own: over the axes (0, 2, 3).", axes=1)
FORWARD.variant("mean and variance over the whole array", "Every channel has its own: axes (0, 2, 3).", axes=None)
FORWARD.variant("the mean is not subtracted", "The channels of the result don't have mean 0.", centred=False)


@FORWARD.misreading("ε is forgotten", "A channel that is dead, the same everywhere, would divide by zero.")
def without_eps(x, weight, bias, eps):
    return x, weight, bias, 0.0


@FORWARD.misreading("weight is forgotten", "Scale the normalised channels by weight.")
def without_weight(x, weight, bias, eps):
    return x, np.ones_like(weight), bias, eps


@FORWARD.misreading("bias is forgotten", "Add the bias after scaling.")
def without_bias(x, weight, bias, eps):
    return x, weight, np.zeros_like(bias), eps


BACKWARD.variant(
    "mean and variance taken as constants",
    "That is the gradient in evaluation. In training each x moves the mean and the variance of its channel, and "
    "through them all others.",
    mean=False, variance=False,
)  # fmt: skip
BACKWARD.variant(
    "the path through the mean is missing", "Each x is 1/n of its channel's mean, which is subtracted.", mean=False
)
BACKWARD.variant(
    "the path through the variance is missing", "A larger x̂ also makes the standard deviation larger.", variance=False
)
BACKWARD.variant(
    "the means in dx are over the samples only", "The forward's means are over samples and places: (0, 2, 3).", axes=0
)
BACKWARD.variant(
    "the means in dx are of each sample alone", "The forward's means are over the samples too: (0, 2, 3).", axes=(2, 3)
)
BACKWARD.variant("the sample variance", "The forward's variance is divided by n, not by n − 1.", ddof=1)
BACKWARD.variant("dx is not divided by the standard deviation", "x̂ is x, less its mean, times 1/σ: so is dx.", power=0)
BACKWARD.variant("dx is divided by the variance", "1/σ stands in dx once.", power=2)
BACKWARD.variant("dx without weight", "y is x̂ times weight, so the gradient of x̂ is dy times weight.", scaled=False)
BACKWARD.variant("dweight with x in place of x̂", "weight multiplies the normalised x.", of="x")
BACKWARD.variant("dweight with x − mean in place of x̂", "weight multiplies (x − mean) / √(variance + ε).", of="centred")
BACKWARD.variant("dweight without x̂", "weight multiplies x̂, so its gradient is the sum of dy times x̂.", of="nothing")
BACKWARD.variant(
    "the broadcast weight and bias are summed over the samples only", "All places share them: (0, 2, 3).", rows=0
)
BACKWARD.variant(
    "the broadcast weight and bias are summed over the places only", "All samples share them: (0, 2, 3).", rows=(2, 3)
)


@BACKWARD.mistake(
    "the gradients of weight and bias are means", "They get the sum over all that used them; the 1/n stands in dx only."
)
def means_for_sums(dy, x, weight, eps):
    _, dweight, dbias = right(dy, x, weight, eps)
    n = x.size / len(weight)
    return {"dweight": dweight / n, "dbias": dbias / n}


RUNNING.variant("the biased variance", "The running variance is divided by n − 1: x.var(axes, ddof=1).", ddof=0)
RUNNING.variant(
    "momentum and 1 − momentum are exchanged",
    "Unlike an optimizer's momentum, it is the share of the new one: running + momentum · (new − running).",
    exchanged=True,
)
RUNNING.variant("standard deviations in place of variances", "The variance is kept, without a root.", power=0.5)


@RUNNING.misreading("the statistics of the batch alone", "Of the batch's only the share `momentum` counts.")
def batch_alone(x, running_mean, running_variance, momentum):
    return x, running_mean, running_variance, 1.0


@RUNNING.mistake("the old statistics fade away too little", "The old ones count 1 − momentum, not 1.")
def old_kept(x, running_mean, running_variance, momentum):
    mean, variance = running_statistics(x, running_mean, running_variance, momentum)
    return mean + momentum * running_mean, variance + momentum * running_variance
