"""SiLU, and the factors of squeeze and excitation."""


from tinyvit import functional as F
from tinyvit.exercises.exercise import Exercise


def silu_inputs(random, B, N, D):
    return random.standard_normal((B, N, D)), 2 * random.standard_normal((B, N, D))


def scale_inputs(random, B, C, H, W):
    return (*(random.standard_normal((B, C, H, W)) for _ in range(2)), random.standard_normal((B, C)))


SILU = Exercise(
    "silu_backward",
    "The gradient of y = x σ(x), where σ(x) = 1 / (1 + exp(−x)).",
    {"dy": "(B, N, D), the gradient of y", "x": "(B, N, D)"},
    {"dx": "(B, N, D)"},
    right=lambda dy, x: F.silu_backward(dy, F.silu(x)[1]),
    shown=(F.silu, F.silu_backward),
    inputs=silu_inputs,
    sizes=({"B": 2, "N": 3, "D": 4}, {"B": 1, "N": 2, "D": 5}),
)
SCALE = Exercise(
    "scale_channels_backward",
    "The gradients of y[b, c, i, j] = x[b, c, i, j] · weight[b, c]: each map of each sample has a factor.",
    {"dy": "(B, C, H, W), the gradient of y", "x": "(B, C, H, W)", "weight": "(B, C)"},
    {"dx": "(B, C, H, W)", "dweight": "(B, C)"},
    right=lambda dy, x, weight: F.scale_channels_backward(dy, F.scale_channels(x, weight)[1]),
    shown=(F.scale_channels, F.scale_channels_backward),
    inputs=scale_inputs,
    sizes=({"B": 2, "C": 3, "H": 4, "W": 5}, {"B": 1, "C": 2, "H": 5, "W": 3}),
)
EXERCISES = SILU, SCALE

SILU.edit("the derivative of σ alone", "y is a product of x and σ(x): both factors move with x.",
    ("(1 + x * (1 - gate))", "(1 - gate)"))
SILU.edit("σ(x) is taken as a constant", "y is a product of x and σ(x): the second factor moves with x, too.",
    (" * (1 + x * (1 - gate))", ""))
SILU.edit("the factor x is taken as a constant", "y is a product of x and σ(x): the first factor moves, too.",
    ("(1 + x", "(x"))
SILU.edit("a sign in the derivative of σ", "The derivative of σ is σ (1 − σ), above 0 everywhere.", ("1 + x", "1 - x"))

SCALE.edit("dweight is a mean over the map", "All H · W pixels used the factor: their gradients are added up.",
    ("sum", "mean"))
SCALE.edit("dweight is summed over the samples, too", "Each sample has factors of its own: (B, C).",
    ("sum((2, 3))", "sum((0, 2, 3)) + 0 * weight"))
SCALE.edit("dweight without x", "The local derivative of y with respect to the factor is x.", ("(dy * x)", "dy"))
SCALE.edit("dx without the factor", "The local derivative of y with respect to x is the factor of its map.",
    (" * weight[:, :, None, None]", ""))
