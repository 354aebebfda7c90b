"""The layer norm."""

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

VARIANCE = "(centred * centred).mean(-1, keepdims=True)"

FORWARD.edit("the sample variance", "The variance of a layer norm is the mean of (x − mean)²: divided by D, not by D − "
    "1.", (VARIANCE, "x.var(-1, ddof=1, keepdims=True)"))
FORWARD.edit("ε outside of the square root", "ε belongs to the variance, under the root: √(variance + ε).",
    (f"({VARIANCE} + eps) ** -0.5", f"1 / ({VARIANCE} ** 0.5 + eps)"))
FORWARD.edit("ε is forgotten", "Without ε a row of equal numbers divides by zero.", "eps = 0")
FORWARD.edit("divided by the variance", "Divide by the standard deviation, the variance's square root.",
    ("** -0.5", "** -1"))
FORWARD.edit("mean and variance over the batch", "A batch norm averages over samples; a layer norm over each row "
    "alone.", ("mean(-1", "mean(0"))
FORWARD.edit("mean and variance over the tokens", "Each token has its own mean over its D numbers, the last axis.",
    ("mean(-1", "mean(1"))
FORWARD.edit("mean and variance over tokens and numbers", "Each token has its own mean and variance: axis=-1, not (1, "
    "2).", ("mean(-1", "mean((1, 2)"))
FORWARD.edit("mean and variance over the whole array", "Each row has its own: axis=-1, with keepdims=True.",
    ("-1, keepdims=True", ""))
FORWARD.edit("the mean is not subtracted", "That is nearly an RMS norm: the rows of the result don't have mean 0.",
    ("centred * rstd", "x * rstd"))
FORWARD.edit("an RMS norm", "It divides by √mean(x²); a layer norm subtracts the mean first.",
    (" - x.mean(-1, keepdims=True)", ""))
FORWARD.edit("weight is forgotten", "Scale the normalised rows by weight.", (" * weight", ""))
FORWARD.edit("bias is forgotten", "Add the bias after scaling.", (" + bias", ""))
FORWARD.edit("shifted before it is scaled", "First times weight, then plus bias: the bias is not scaled.",
    ("xhat * weight + bias", "(xhat + bias) * weight"))
