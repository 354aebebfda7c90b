"""Vectors of length 1, and the gradient of the loss between views."""

import numpy as np

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


def length(x):
    return (x * x).sum(-1, keepdims=True) ** 0.5


@NORMALISE.mistake("the length is taken as a constant", "‖x‖ depends on every entry of x, and moves, too.")
def constant_length(dy, x):
    return dy / length(x)


@NORMALISE.mistake("not divided by the length", "y is x / ‖x‖: a long x moves y less.")
def undivided(dy, x):
    y = x / length(x)
    return dy - y * (dy * y).sum(-1, keepdims=True)


@NORMALISE.mistake("x in place of y", "What is taken out lies along y = x / ‖x‖, of length 1.")
def along_x(dy, x):
    return (dy - x * (dy * x).sum(-1, keepdims=True)) / length(x)


def gradient(logits, teacher, temperature, pairs=None, own=True):
    """The gradient of the sum over pairs, divided by their number, with the pairs t = v or without."""
    B, V, _ = logits.shape
    q, _ = F.softmax(logits / temperature)
    others = np.ones((V, 2)) - own * np.eye(V, 2)
    targets = others @ teacher
    pairs = B * others.sum() if pairs is None else pairs
    return (q * targets.sum(-1, keepdims=True) - targets) / (temperature * pairs)


@LOSS.mistake("a view is compared with itself, too", "Only pairs of different views count: t ≠ v.")
def with_itself(logits, teacher, temperature):
    return gradient(logits, teacher, temperature, own=False)


@LOSS.mistake("a factor 1/τ is missing", "The logits are divided by τ, and so is their gradient.")
def without_temperature(logits, teacher, temperature):
    return gradient(logits, teacher, temperature) * temperature


@LOSS.mistake("a sum over the pairs, not a mean", "The mean is over B samples and 2V − 2 pairs of views each.")
def sum_over_pairs(logits, teacher, temperature):
    return gradient(logits, teacher, temperature, pairs=len(logits))


@LOSS.mistake("a sum over the samples, not a mean", "The mean is over B samples and 2V − 2 pairs of views each.")
def sum_over_samples(logits, teacher, temperature):
    return gradient(logits, teacher, temperature) * len(logits)


@LOSS.mistake("the sign is turned", "The loss falls where the student comes nearer: q − p, not p − q.")
def turned(logits, teacher, temperature):
    return -gradient(logits, teacher, temperature)


@NORMALISE.mistake("a sign", "What lies along y is taken out of dy, not added.")
def sign(dy, x):
    y = x / length(x)
    return (dy + y * (dy * y).sum(-1, keepdims=True)) / length(x)
