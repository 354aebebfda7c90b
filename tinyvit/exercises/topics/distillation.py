"""The gradient of a student's loss."""

import numpy as np

from tinyvit import functional as F
from tinyvit.exercises.exercise import Exercise


def inputs(random, B, K):
    return 3 * random.standard_normal((B, K)), 3 * random.standard_normal((B, K)), float(random.uniform(1.5, 4))


BACKWARD = Exercise(
    "distillation_backward",
    "The gradient of a student's logits for the loss τ² / (B K) · Σ p log(p / q), summed over samples and classes, "
    "with p = softmax(teacher / τ) and q = softmax(logits / τ). The teacher's logits are constants.",
    {"logits": "(B, K), the student's", "teacher": "(B, K), the teacher's logits", "temperature": "τ"},
    {"dlogits": "(B, K)"},
    right=lambda logits, teacher, temperature: F.distillation_backward(
        1.0, F.distillation(logits, teacher, temperature)[1]
    ),
    shown=(F.distillation, F.distillation_backward),
    inputs=inputs,
    sizes=({"B": 3, "K": 4}, {"B": 1, "K": 5}),
)
EXERCISES = (BACKWARD,)


def apart(logits, teacher, temperature):
    """q − p."""
    q, p = (F.softmax(x / temperature)[0] for x in (logits, teacher))
    return q - p


@BACKWARD.mistake("the sign is turned", "The loss falls where the student comes nearer: q − p, not p − q.")
def turned(logits, teacher, temperature):
    return apart(teacher, logits, temperature) * temperature / logits.size


@BACKWARD.mistake("a factor τ is missing", "τ² stands before the sum, and the logits are divided by τ: τ is left.")
def without_temperature(logits, teacher, temperature):
    return apart(logits, teacher, temperature) / logits.size


@BACKWARD.mistake("a factor τ too many", "The logits are divided by τ, and so is their gradient: of τ² only τ is left.")
def squared_temperature(logits, teacher, temperature):
    return apart(logits, teacher, temperature) * temperature**2 / logits.size


@BACKWARD.mistake("divided by the samples only", "The loss is divided by B K, the number of all logits.")
def by_samples(logits, teacher, temperature):
    return apart(logits, teacher, temperature) * temperature / len(logits)


@BACKWARD.mistake("a sum, not a mean", "The loss is divided by B K, the number of all logits.")
def not_divided(logits, teacher, temperature):
    return apart(logits, teacher, temperature) * temperature


@BACKWARD.mistake("the probabilities of logits that are not divided by τ", "Both softmaxes are of logits / τ.")
def at_temperature_one(logits, teacher, temperature):
    return apart(logits, teacher, 1.0) * temperature / logits.size


@BACKWARD.mistake("the teacher's probabilities are not at the temperature", "Both softmaxes are of logits / τ.")
def teacher_at_one(logits, teacher, temperature):
    q, p = F.softmax(logits / temperature)[0], F.softmax(teacher)[0]
    return (q - p) * temperature / logits.size


@BACKWARD.mistake("the gradient for the teacher's class alone", "Soft targets are probabilities of all classes.")
def hard(logits, teacher, temperature):
    p = np.eye(logits.shape[1])[teacher.argmax(1)]
    return (F.softmax(logits / temperature)[0] - p) * temperature / logits.size
