"""The RMS norm and its gradient, which the package itself doesn't use."""

from tinyvit.exercises import solutions
from tinyvit.exercises.exercise import Exercise, visible_eps


def inputs(random, B, N, D):
    return 0.5 + 2 * random.standard_normal((B, N, D)), 1 + random.standard_normal(D), visible_eps(random)


def backward_inputs(random, B, N, D):
    x, weight, eps = inputs(random, B, N, D)
    return random.standard_normal(x.shape), x, weight, eps


SIZES = {"B": 2, "N": 3, "D": 5}, {"B": 1, "N": 4, "D": 7}
FORWARD = Exercise(
    "rmsnorm",
    "Divide every row of x by its root mean square, √(mean(x²) + ε), and scale it by weight (Zhang & Sennrich 2019).",
    {"x": "(B, N, D)", "weight": "(D,)", "eps": "ε, a number"},
    {"y": "(B, N, D)"},
    right=solutions.rmsnorm,
    shown=(solutions.rmsnorm,),
    inputs=inputs,
    sizes=SIZES,
)
BACKWARD = Exercise(
    "rmsnorm_backward",
    "The gradients of the RMS norm y = x̂ · weight, where x̂ = x / √(mean(x²) + ε) row by row.",
    {"dy": "(B, N, D), the gradient of y", "x": "(B, N, D)", "weight": "(D,)", "eps": "ε, a number"},
    {"dx": "(B, N, D)", "dweight": "(D,)"},
    right=solutions.rmsnorm_backward,
    shown=(solutions.rmsnorm_backward,),
    inputs=backward_inputs,
    sizes=SIZES,
)
EXERCISES = FORWARD, BACKWARD

MEAN_SQUARE, ROWS = "(x * x).mean(-1, keepdims=True)", ".sum(tuple(range(x.ndim - 1)))"

FORWARD.edit("a layer norm", "An RMS norm leaves the mean alone: it divides by √mean(x²).",
    "x = x - x.mean(-1, keepdims=True)")
FORWARD.edit("divided by the standard deviation", "The root mean square is that of x, without subtracting the mean.",
    (MEAN_SQUARE, "x.var(-1, keepdims=True)"))
FORWARD.edit("the square root is forgotten", "Divide by the root of the mean square.", ("** -0.5", "** -1"))
FORWARD.edit("the sum of squares, not their mean", "It is the root of the mean: divided by D.", (".mean(", ".sum("))
FORWARD.edit("ε outside of the square root", "ε belongs to the mean square, under the root.",
    (f"({MEAN_SQUARE} + eps) ** -0.5", f"1 / ({MEAN_SQUARE} ** 0.5 + eps)"))
FORWARD.edit("ε is forgotten", "Without ε a row of zeros divides by zero.", "eps = 0")
FORWARD.edit("weight is forgotten", "Scale the normalised rows by weight.", (" * weight", ""))

# -- backward -----------------------------------------------------------------------------------------------------

BACKWARD.edit("the 1/N term is missing", "The root mean square depends on the whole row: each entry of x changes every "
    "entry of x̂ through it. This adds a term to dx that has a mean over the row.", (" - xhat * mean_gxhat", ""))
BACKWARD.edit("the mean of a layer norm is still subtracted", "The forward subtracts no mean, so that term is absent "
    "from the backward: only one of the two means is left.", ("(g - xhat", "(g - g.mean(-1, keepdims=True) - xhat"))
BACKWARD.edit("the wrong one of a layer norm's two means is left", "The one that came through the variance is left, "
    "with x̂ twice.", ("- xhat * mean_gxhat", "- g.mean(-1, keepdims=True)"))
BACKWARD.edit("a sum where the 1/N term is a mean", "The term is divided by the row's length.",
    ("(g * xhat).mean", "(g * xhat).sum"))
BACKWARD.edit("the 1/N term is added", "The larger the root mean square, the smaller x̂: the term is subtracted.",
    ("g - xhat", "g + xhat"))
BACKWARD.edit("x̂ is forgotten in front of the 1/N term", "The derivative of the mean square is proportional to the "
    "entry itself.", ("xhat * mean_gxhat", "mean_gxhat"))
BACKWARD.edit("x in place of x̂ in the 1/N term", "Derive it in terms of x̂, the normalised x.", ("g - xhat", "g - x"),
    ("(g * xhat)", "(g * x)"))
BACKWARD.edit("1/root mean square is forgotten", "x̂ divides by the root mean square, and so does the gradient.",
    ("dx = r * ", "dx = "))
BACKWARD.edit("weight is forgotten in dx", "The gradient of x̂ is dy times weight.", ("dy * weight", "dy"))
BACKWARD.edit("ε is forgotten", "It was added to the mean square in the forward.", "eps = 0")
BACKWARD.edit("x in place of x̂ in dweight", "weight was multiplied with the normalised x.", ("dy * xhat", "dy * x"))
BACKWARD.edit("the broadcast weight is not summed", "All rows share it, so its gradient is a sum over all rows.",
    (ROWS, ""))
BACKWARD.edit("the broadcast weight is summed over samples only", "All tokens of all samples share it.",
    (ROWS, ".sum(0)"))
BACKWARD.edit("dweight is a mean", "The weight gets the sum of the gradients of all rows.", ("xhat).sum", "xhat).mean"))
