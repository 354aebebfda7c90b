"""Vectors of length 1, and the gradient of the loss between views."""

from tinyvit import functional as F
from tinyvit.exercises.exercise import Exercise


def normalise_inputs(random, B, N, D):
    return random.standard_normal((B, N, D)), 2 * random.standard_normal((B, N, D))


def loss_inputs(random, B, V, K):
    teacher, _ = F.softmax(2 * random.standard_normal((B, 2, K)))
    return random.standard_normal((B, V, K)), teacher, float(random.uniform(0.3, 0.8))


NORMALISE = Exercise(
    "l2_normalise_backward",
    "The gradient of y = x / ‖x‖, where ‖x‖ is the root of the sum of squares along the last axis.",
    {"dy": "(B, N, D), the gradient of y", "x": "(B, N, D)"},
    {"dx": "(B, N, D)"},
    right=lambda dy, x: F.l2_normalise_backward(dy, F.l2_normalise(x)[1]),
    shown=(F.l2_normalise, F.l2_normalise_backward),
    inputs=normalise_inputs,
    sizes=({"B": 2, "N": 3, "D": 4}, {"B": 1, "N": 2, "D": 5}),
)
LOSS = Exercise(
    "dino_loss_backward",
    "The gradient of the student's logits for the mean, over samples and pairs of views t ≠ v, of the cross-entropy "
    "−Σ p[t] log softmax(z[v] / τ). The teacher has seen the first two of the V views.",
    {"logits": "(B, V, K), the student's", "teacher": "(B, 2, K), probabilities", "temperature": "τ"},
    {"dlogits": "(B, V, K)"},
    right=lambda logits, teacher, temperature: F.dino_loss_backward(
        1.0, F.dino_loss(logits, teacher, temperature)[1]
    ),
    shown=(F.dino_loss, F.dino_loss_backward),
    inputs=loss_inputs,
    sizes=({"B": 2, "V": 4, "K": 3}, {"B": 1, "V": 3, "K": 5}),
)
EXERCISES = NORMALISE, LOSS

MEAN = "The mean is over B samples and 2V − 2 pairs of views each."

NORMALISE.edit("the length is taken as a constant", "‖x‖ depends on every entry of x, and moves, too.",
    (" - y * (dy * y).sum(-1, keepdims=True)", ""))
NORMALISE.edit("not divided by the length", "y is x / ‖x‖: a long x moves y less.", (")) / norm", "))"))
NORMALISE.edit("x in place of y", "What is taken out lies along y = x / ‖x‖, of length 1.", ("y = x / norm", "y = x"))
NORMALISE.edit("a sign", "What lies along y is taken out of dy, not added.", ("dy - y", "dy + y"))

LOSS.edit("a view is compared with itself, too", "Only pairs of different views count: t ≠ v.", ("t != v", "True"),
    ("2 * V - 2", "2 * V"))
LOSS.edit("a factor 1/τ is missing", "The logits are divided by τ, and so is their gradient.", ("temperature * B", "B"))
LOSS.edit("a sum over the pairs, not a mean", MEAN, (" * (2 * V - 2)", ""))
LOSS.edit("a sum over the samples, not a mean", MEAN, ("* B * ", "* "))
LOSS.edit("the sign is turned", "The loss falls where the student comes nearer: q − p, not p − q.",
    ("q[:, v] - teacher[:, t]", "teacher[:, t] - q[:, v]"))
