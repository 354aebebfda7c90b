"""First backwards, for a reader who has written none yet: what is broadcast sums, and what is used twice adds up."""

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

DWEIGHT, DBIAS = "(dy * x).sum((0, 1))", "dy.sum((0, 1))"
EVERY_ROW = "Every row of every sample used it, so its gradient is a sum over all of them: over axes 0 and 1."
NO_MEAN = "The forward has no 1/N: what was used by many rows gets the sum."
LOCAL = "The local gradient of x * weight with respect to weight is x."
TWICE = "x goes into y twice: directly, and through the mean of its row."
OWN_MEAN = "Each row has a mean of its own: axis=-1, with keepdims=True."

SCALE.edit("dx is not multiplied by weight", "The local gradient of x * weight with respect to x is weight.",
    ("dy * weight", "dy"))
SCALE.edit("dx is multiplied by x", "The local gradient of x * weight with respect to x is weight, the other one.",
    ("dy * weight", "dy * x"))
SCALE.edit("dx is divided by weight", "Backwards is not the inverse: the upstream gradient is multiplied.",
    ("dy * weight", "dy / weight"))
SCALE.edit("the broadcast weight is not summed", EVERY_ROW, (DWEIGHT, "dy * x"))
SCALE.edit("the broadcast weight is summed over samples only", EVERY_ROW, (DWEIGHT, "(dy * x).sum(0)"))
SCALE.edit("the broadcast weight is summed over rows only", EVERY_ROW, (DWEIGHT, "(dy * x).sum(1)"))
SCALE.edit("dweight is not multiplied by x", LOCAL, ("(dy * x)", "dy"))
SCALE.edit("dweight is multiplied by weight", LOCAL, ("(dy * x)", "(dy * weight)"))
SCALE.edit("the sums are multiplied, not the products summed", "Multiply dy and x entry by entry, then sum.",
    (DWEIGHT, f"{DBIAS} * x.sum((0, 1))"))
SCALE.edit("a mean in place of the sum", NO_MEAN, ("x).sum", "x).mean"))
SCALE.edit("the broadcast bias is not summed", EVERY_ROW, (DBIAS, "dy"))
SCALE.edit("the broadcast bias is summed over samples only", EVERY_ROW, (DBIAS, "dy.sum(0)"))
SCALE.edit("the broadcast bias is summed over rows only", EVERY_ROW, (DBIAS, "dy.sum(1)"))
SCALE.edit("a mean in place of the sum", NO_MEAN, ("dy.sum", "dy.mean"))
SCALE.edit("the bias's gradient is 1", "1 is its local gradient; multiply it by dy, and sum.",
    (DBIAS, "np.ones_like(weight)"))

CENTRE.edit("the mean's path is missing", TWICE, (" - dy.mean(-1, keepdims=True)", ""))
CENTRE.edit("a sum in place of the mean", "An entry moves the mean of its row by 1/D: the local gradient is 1/D.",
    ("mean", "sum"))
CENTRE.edit("the mean's path has the wrong sign", "The mean is subtracted, so its gradient is minus the sum of dy.",
    ("dy - ", "dy + "))
CENTRE.edit("the mean's path is not summed over the row", "Each entry moves all D results of its row: sum them.",
    ("dy.mean(-1, keepdims=True)", "dy / dy.shape[-1]"))
CENTRE.edit("the mean of the columns", OWN_MEAN, ("-1", "0"))
CENTRE.edit("the mean of the whole array", OWN_MEAN, ("-1, keepdims=True", ""))
CENTRE.edit("keepdims=True is missing", "A sum without keepdims is (N,), and NumPy lines that up with the columns.",
    (", keepdims=True", ""))
CENTRE.edit("only the mean's path", TWICE, ("dy - ", "0 * dy - "))
