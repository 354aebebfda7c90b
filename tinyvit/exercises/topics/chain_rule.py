"""First backwards, for a reader who has written none yet: what is broadcast sums, and what is used twice adds up."""

import numpy as np

from tinyvit import functional as F
from tinyvit.exercises import solutions
from tinyvit.exercises.exercise import Exercise


def scaled_inputs(random, B, N, D):
    return random.standard_normal((B, N, D)), random.standard_normal((B, N, D)), random.standard_normal(D)


def centred_inputs(random, N, D):
    return (random.standard_normal((N, D)),)


SCALE = Exercise(
    "scale_and_shift_backward",
    "The gradients of y = x * weight + bias, where weight and bias, each (D,), are broadcast to every row of x.",
    {"dy": "(B, N, D), the gradient of y", "x": "(B, N, D)", "weight": "(D,)"},
    {"dx": "(B, N, D)", "dweight": "(D,)", "dbias": "(D,)"},
    right=solutions.scale_and_shift_backward,
    shown=(F.layernorm_backward,),
    inputs=scaled_inputs,
    sizes=({"B": 2, "N": 3, "D": 4}, {"B": 3, "N": 5, "D": 1}),
    equal={"B": 3, "N": 3, "D": 3},
)
CENTRE = Exercise(
    "centre_backward",
    "The gradient of y = x - x.mean(-1, keepdims=True), which takes from each row its own mean.",
    {"dy": "(N, D), the gradient of y"},
    {"dx": "(N, D)"},
    right=solutions.centre_backward,
    shown=(F.layernorm_backward,),
    inputs=centred_inputs,
    sizes=({"N": 3, "D": 4}, {"N": 2, "D": 7}),
    equal={"N": 4, "D": 4},
)
EXERCISES = SCALE, CENTRE

EVERY_ROW = "Every row of every sample used it, so its gradient is a sum over all of them: over axes 0 and 1."


@SCALE.mistake("dx is not multiplied by weight", "The local gradient of x * weight with respect to x is weight.")
def dx_without_weight(dy, x, weight):
    return {"dx": dy}


@SCALE.mistake("dx is multiplied by x", "The local gradient of x * weight with respect to x is weight, the other one.")
def dx_by_itself(dy, x, weight):
    return {"dx": dy * x}


@SCALE.mistake("dx is divided by weight", "Backwards is not the inverse: the upstream gradient is multiplied.")
def dx_divided(dy, x, weight):
    return {"dx": dy / weight}


@SCALE.mistake("the broadcast weight is not summed", EVERY_ROW)
def dweight_not_summed(dy, x, weight):
    return {"dweight": dy * x}


@SCALE.mistake("the broadcast weight is summed over samples only", EVERY_ROW)
def dweight_over_samples(dy, x, weight):
    return {"dweight": (dy * x).sum(0)}


@SCALE.mistake("the broadcast weight is summed over rows only", EVERY_ROW)
def dweight_over_rows(dy, x, weight):
    return {"dweight": (dy * x).sum(1)}


@SCALE.mistake("dweight is not multiplied by x", "The local gradient of x * weight with respect to weight is x.")
def dweight_without_x(dy, x, weight):
    return {"dweight": dy.sum((0, 1))}


@SCALE.mistake("dweight is multiplied by weight", "The local gradient of x * weight with respect to weight is x.")
def dweight_by_itself(dy, x, weight):
    return {"dweight": (dy * weight).sum((0, 1))}


@SCALE.mistake("the sums are multiplied, not the products summed", "Multiply dy and x entry by entry, then sum.")
def product_of_sums(dy, x, weight):
    return {"dweight": dy.sum((0, 1)) * x.sum((0, 1))}


@SCALE.mistake("a mean in place of the sum", "The forward has no 1/N: what was used by many rows gets the sum.")
def dweight_mean(dy, x, weight):
    return {"dweight": (dy * x).mean((0, 1))}


@SCALE.mistake("the broadcast bias is not summed", EVERY_ROW)
def dbias_not_summed(dy, x, weight):
    return {"dbias": dy}


@SCALE.mistake("the broadcast bias is summed over samples only", EVERY_ROW)
def dbias_over_samples(dy, x, weight):
    return {"dbias": dy.sum(0)}


@SCALE.mistake("the broadcast bias is summed over rows only", EVERY_ROW)
def dbias_over_rows(dy, x, weight):
    return {"dbias": dy.sum(1)}


@SCALE.mistake("a mean in place of the sum", "The forward has no 1/N: what was used by many rows gets the sum.")
def dbias_mean(dy, x, weight):
    return {"dbias": dy.mean((0, 1))}


@SCALE.mistake("the bias's gradient is 1", "1 is its local gradient; multiply it by dy, and sum.")
def dbias_local(dy, x, weight):
    return {"dbias": np.ones_like(weight)}


@CENTRE.mistake("the mean's path is missing", "x goes into y twice: directly, and through the mean of its row.")
def without_the_mean(dy):
    return dy


@CENTRE.mistake("a sum in place of the mean", "An entry moves the mean of its row by 1/D: the local gradient is 1/D.")
def sum_for_mean(dy):
    return dy - dy.sum(-1, keepdims=True)


@CENTRE.mistake("the mean's path has the wrong sign", "The mean is subtracted, so its gradient is minus the sum of dy.")
def wrong_sign(dy):
    return dy + dy.mean(-1, keepdims=True)


@CENTRE.mistake("the mean's path is not summed over the row", "Each entry moves all D results of its row: sum them.")
def not_summed(dy):
    return dy - dy / dy.shape[-1]


@CENTRE.mistake("the mean of the columns", "Each row has a mean of its own: axis=-1, with keepdims=True.")
def over_columns(dy):
    return dy - dy.mean(0, keepdims=True)


@CENTRE.mistake("the mean of the whole array", "Each row has a mean of its own: axis=-1, with keepdims=True.")
def over_everything(dy):
    return dy - dy.mean()


@CENTRE.mistake("keepdims=True is missing", "A sum without keepdims is (N,), and NumPy lines that up with the columns.")
def without_keepdims(dy):
    return dy - dy.mean(-1)


@CENTRE.mistake("only the mean's path", "x goes into y twice: directly, and through the mean of its row.")
def only_the_mean(dy):
    return np.broadcast_to(-dy.mean(-1, keepdims=True), dy.shape)
