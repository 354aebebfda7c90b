"""The layer norm."""

import numpy as np

from tinyvit import functional as F
from tinyvit.exercises.exercise import Case, Exercise, visible_eps


def inputs(random, B, N, D):
    weight, bias = 1 + random.standard_normal(D), random.standard_normal(D)
    return 0.5 + 2 * random.standard_normal((B, N, D)), weight, bias, visible_eps(random)


def far_from_zero(random):
    x, weight, bias, eps = inputs(random, 2, 3, 5)
    return x + 1e7, weight, bias, eps


SIZES = {"B": 2, "N": 3, "D": 5}, {"B": 1, "N": 4, "D": 7}
FORWARD = Exercise(
    "layernorm",
    "Give every row of x mean 0 and variance 1 (ε is added to the variance), scale it by weight and shift it by bias.",
    {"x": "(B, N, D)", "weight": "(D,)", "bias": "(D,)", "eps": "ε, a number"},
    {"y": "(B, N, D)"},
    right=lambda *arguments: F.layernorm(*arguments)[0],
    shown=(F.layernorm,),
    inputs=inputs,
    sizes=SIZES,
    traps=(
        Case(
            "rows whose mean is 10⁷",
            far_from_zero,
            usual=(
                "the variance as E[x²] − E[x]²",
                "That is right on paper, but it subtracts two large numbers that are nearly equal, and few digits of "
                "the difference are left. Subtract the mean first, then square.",
            ),
            tolerance=1e-6,
        ),
    ),
)
EXERCISES = (FORWARD,)


def moments(x, axis=-1):
    return x.mean(axis, keepdims=True), x.var(axis, keepdims=True)


@FORWARD.mistake(
    "the sample variance", "The variance of a layer norm is the mean of (x − mean)²: divided by D, not by D − 1."
)
def sample_variance(x, weight, bias, eps):
    mean, _ = moments(x)
    return (x - mean) / np.sqrt(x.var(-1, ddof=1, keepdims=True) + eps) * weight + bias


@FORWARD.mistake("ε outside of the square root", "ε belongs to the variance, under the root: √(variance + ε).")
def eps_outside(x, weight, bias, eps):
    mean, var = moments(x)
    return (x - mean) / (np.sqrt(var) + eps) * weight + bias


@FORWARD.misreading("ε is forgotten", "Without ε a row of equal numbers divides by zero.")
def without_eps(x, weight, bias, eps):
    return x, weight, bias, 0.0


@FORWARD.mistake("divided by the variance", "Divide by the standard deviation, the variance's square root.")
def divided_by_variance(x, weight, bias, eps):
    mean, var = moments(x)
    return (x - mean) / (var + eps) * weight + bias


@FORWARD.mistake(
    "mean and variance over the batch", "A batch norm averages over samples; a layer norm over each row alone."
)
def over_the_batch(x, weight, bias, eps):
    mean, var = moments(x, 0)
    return (x - mean) / np.sqrt(var + eps) * weight + bias


@FORWARD.mistake("mean and variance over the tokens", "Each token has its own mean over its D numbers, the last axis.")
def over_the_tokens(x, weight, bias, eps):
    mean, var = moments(x, 1)
    return (x - mean) / np.sqrt(var + eps) * weight + bias


@FORWARD.mistake(
    "mean and variance over tokens and numbers", "Each token has its own mean and variance: axis=-1, not (1, 2)."
)
def over_tokens_and_numbers(x, weight, bias, eps):
    mean, var = moments(x, (1, 2))
    return (x - mean) / np.sqrt(var + eps) * weight + bias


@FORWARD.mistake("mean and variance over the whole array", "Each row has its own: axis=-1, with keepdims=True.")
def over_everything(x, weight, bias, eps):
    return (x - x.mean()) / np.sqrt(x.var() + eps) * weight + bias


@FORWARD.mistake("the mean is not subtracted", "That is nearly an RMS norm: the rows of the result don't have mean 0.")
def mean_kept(x, weight, bias, eps):
    return x / np.sqrt(moments(x)[1] + eps) * weight + bias


@FORWARD.mistake("an RMS norm", "It divides by √mean(x²); a layer norm subtracts the mean first.")
def rms_norm(x, weight, bias, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight + bias


@FORWARD.misreading("weight is forgotten", "Scale the normalised rows by weight.")
def without_weight(x, weight, bias, eps):
    return x, np.ones_like(weight), bias, eps


@FORWARD.misreading("bias is forgotten", "Add the bias after scaling.")
def without_bias(x, weight, bias, eps):
    return x, weight, np.zeros_like(bias), eps


@FORWARD.mistake("shifted before it is scaled", "First times weight, then plus bias: the bias is not scaled.")
def shifted_first(x, weight, bias, eps):
    mean, var = moments(x)
    return ((x - mean) / np.sqrt(var + eps) + bias) * weight
