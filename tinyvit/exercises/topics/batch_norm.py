"""Batch normalisation in training, its gradients and its running statistics."""

import numpy as np

from tinyvit import functional as F
from tinyvit.exercises.exercise import Exercise, visible_eps


def inputs(random, B, C, H, W):
    weight, bias = 1 + random.standard_normal(C), random.standard_normal(C)
    return 0.5 + 2 * random.standard_normal((B, C, H, W)), weight, bias, visible_eps(random)


def backward_inputs(random, B, C, H, W):
    x, weight, _, eps = inputs(random, B, C, H, W)
    return random.standard_normal(x.shape), x, weight, eps


def running_inputs(random, B, C, H, W):
    x, mean, _, momentum = inputs(random, B, C, H, W)
    return x, mean, random.uniform(0.5, 2, C), momentum


def right(dy, x, weight, eps):
    return F.batch_norm_backward(dy, F.batch_norm(x, weight, np.zeros_like(weight), eps)[1])


def moved(x, running_mean, running_variance, momentum):
    _, cache = F.batch_norm(x, running_variance, running_mean, 1.0)
    old_and_new = (running_mean, cache.mean), (running_variance, cache.variance)
    return tuple((1 - momentum) * old + momentum * new for old, new in old_and_new)


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
    right=moved,
    shown=(F.batch_norm,),
    inputs=running_inputs,
    sizes=(SIZES[0], {"B": 2, "C": 1, "H": 4, "W": 3}),
)
EXERCISES = FORWARD, BACKWARD, RUNNING

VARIANCE = "(centred * centred).mean(axes, keepdims=True)"
SAMPLE_VARIANCE = VARIANCE, "x.var(axes, ddof=1, keepdims=True)"
AXES = "0, 2, 3"

FORWARD.edit("the sample variance", "A batch norm divides by √(variance + ε) with the mean of (x − mean)²: divided by "
    "n, not by n − 1, which only the running variance is.", SAMPLE_VARIANCE)
FORWARD.edit("ε outside of the square root", "ε belongs to the variance, under the root.",
    ("(variance + eps) ** -0.5", "1 / (variance**0.5 + eps)"))
FORWARD.edit("divided by the variance", "Divide by the standard deviation, the variance's square root.", ("-0.5", "-1"))
FORWARD.edit("mean and variance over the samples only", "A channel's filter is the same at all places, and so is its "
    "mean: over samples and places, axes (0, 2, 3).", (AXES, "0"))
FORWARD.edit("mean and variance of each sample alone", "That is an instance norm. A batch norm's mean is over the "
    "samples too, axes (0, 2, 3).", (AXES, "2, 3"))
FORWARD.edit("a layer norm", "A batch norm has a mean for each channel, over the axes (0, 2, 3).", (AXES, "1, 2, 3"))
FORWARD.edit("mean and variance over the channels", "Every channel has its own: over the axes (0, 2, 3).", (AXES, "1"))
FORWARD.edit("mean and variance over the whole array", "Every channel has its own: axes (0, 2, 3).", (AXES, "None"))
FORWARD.edit("the mean is not subtracted", "The channels of the result don't have mean 0.",
    ("xhat = centred", "xhat = x"))
FORWARD.edit("ε is forgotten", "A channel that is dead, the same everywhere, would divide by zero.", "eps = 0")
FORWARD.edit("weight is forgotten", "Scale the normalised channels by weight.", (" * weight[:, None, None]", ""))
FORWARD.edit("bias is forgotten", "Add the bias after scaling.", (" + bias[:, None, None]", ""))

MEANS = "dy.mean(axes, keepdims=True), (dy * xhat).mean(axes, keepdims=True)"
BACKWARD.edit("mean and variance taken as constants", "That is the gradient in evaluation. In training each x moves "
    "the mean and the variance of its channel, and through them all others.", (" - mean_dy - xhat * mean_dyxhat", ""))
BACKWARD.edit("the path through the mean is missing", "Each x is 1/n of its channel's mean, which is subtracted.",
    (" - mean_dy ", " "))
BACKWARD.edit("the path through the variance is missing", "A larger x̂ also makes the standard deviation larger.",
    (" - xhat * mean_dyxhat", ""))
BACKWARD.edit("the means in dx are over the samples only", "The forward's means are over samples and places: (0, 2, "
    "3).", (MEANS, MEANS.replace("axes", "0")))
BACKWARD.edit("the means in dx are of each sample alone", "The forward's means are over the samples too: (0, 2, 3).",
    (MEANS, MEANS.replace("axes", "(2, 3)")))
BACKWARD.edit("the sample variance", "The forward's variance is divided by n, not by n − 1.", SAMPLE_VARIANCE)
BACKWARD.edit("dx is not divided by the standard deviation", "x̂ is x, less its mean, times 1/σ: so is dx.",
    (" * rstd * (", " * ("))
BACKWARD.edit("dx is divided by the variance", "1/σ stands in dx once.", (" * rstd * (", " * rstd**2 * ("))
BACKWARD.edit("dx without weight", "y is x̂ times weight, so the gradient of x̂ is dy times weight.",
    ("weight[:, None, None] * ", ""))
BACKWARD.edit("dweight with x in place of x̂", "weight multiplies the normalised x.",
    ("(dy * xhat).sum", "(dy * x).sum"))
BACKWARD.edit("dweight with x − mean in place of x̂", "weight multiplies (x − mean) / √(variance + ε).",
    ("(dy * xhat).sum", "(dy * centred).sum"))
BACKWARD.edit("dweight without x̂", "weight multiplies x̂, so its gradient is the sum of dy times x̂.",
    ("(dy * xhat).sum", "dy.sum"))
BACKWARD.edit("the broadcast weight and bias are summed over the samples only", "All places share them: (0, 2, 3).",
    ("sum(axes)", "sum(0)"))
BACKWARD.edit("the broadcast weight and bias are summed over the places only", "All samples share them: (0, 2, 3).",
    ("sum(axes)", "sum((2, 3))"))
BACKWARD.edit("the gradients of weight and bias are means", "They get the sum over all that used them; the 1/n stands "
    "in dx only.", ("sum(axes)", "mean(axes)"))

RUNNING.edit("the biased variance", "The running variance is divided by n − 1: x.var(axes, ddof=1).",
    ("ddof=1", "ddof=0"))
RUNNING.edit("momentum and 1 − momentum are exchanged", "Unlike an optimizer's momentum, it is the share of the new "
    "one: running + momentum · (new − running).", "momentum = 1 - momentum")
RUNNING.edit("standard deviations in place of variances", "The variance is kept, without a root.",
    ("* variance", "* variance**0.5"))
RUNNING.edit("the statistics of the batch alone", "Of the batch's only the share `momentum` counts.", "momentum = 1")
RUNNING.edit("the old statistics fade away too little", "The old ones count 1 − momentum, not 1.",
    ("(1 - momentum) * ", ""))
