"""The gradients of the worked example, from the loss back to the patches and the class token."""

from tinyvit.exercises.exercise import Exercise
from tinyvit.exercises.topics.attention_backward import DIAGONAL, NOT_SCALED_BACK
from tinyvit.models import worked_example as example


def inputs(random):
    return (random.standard_normal(example.PATCHES.shape),)


def right(patches):
    gradients = example.backward(example.forward(patches)[1])
    return gradients["dpatches"], gradients["dcls_token"]


BACKWARD = Exercise(
    "worked_example_backward",
    "The gradients of the worked example's loss: of its patches and its class token. All else that it needs is in "
    "tinyvit.models.worked_example: CLS_TOKEN, POSITIONS, NORM_WEIGHT, NORM_BIAS, HEAD_WEIGHT, HEAD_BIAS, LABEL.",
    {"patches": "(1, 4, 4)"},
    {"dpatches": "(1, 4, 4)", "dcls_token": "(1, 1, 4)"},
    right=right,
    shown=(example.forward, example.backward),
    inputs=inputs,
    sizes=({}, {}),
)
EXERCISES = (BACKWARD,)

BACKWARD.edit("the way through the keys is forgotten", "A patch is looked at for what it holds, too: its key stands in "
    "the class token's scores, and through them it decides how much is taken from every other.", (" + dk", ""))
BACKWARD.edit("the way through the values is forgotten", "The class token's output is a weighted sum of the patches: "
    "each gets the gradient times its weight.", (" + dv", ""))
BACKWARD.edit("the way through the queries is forgotten", "The class token asks: its query stands in all its scores, "
    "and each score's gradient comes back to it.", (" + dq", ""))
BACKWARD.edit("the residual's gradient is forgotten", "z¹ is z⁰ plus the attention: dz¹ also goes past the attention, "
    "to z⁰.", ("dz1 + dq", "dq"))
BACKWARD.edit("the scale is forgotten", "The scores were multiplied by 1/√4, and so is their gradient.",
    NOT_SCALED_BACK[-1])
BACKWARD.edit("the Jacobian of the softmax is taken as diagonal", "p(1 − p) is the derivative with respect to its own "
    "score; but each score changes the whole row.", DIAGONAL[-1])
BACKWARD.edit("the layer norm's means are forgotten", "Mean and spread depend on every number of the token: what is "
    "left of the gradient has the mean 0, and no part along the normalised token.",
    ("layernorm_backward", " - mean_g - xhat * mean_gxhat", ""))
BACKWARD.edit("the gradient enters at every token", "The head reads the class token alone; the patches' rows are zero "
    "there.", ("dnormed[:, 0] =", "dnormed[:] ="))
BACKWARD.edit("the target is not subtracted", "The gradient of the logits is π minus 1 at the right class.",
    ("cross_entropy_backward", " - targets", ""))
