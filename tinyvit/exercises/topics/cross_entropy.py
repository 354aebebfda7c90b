"""The cross-entropy of a classifier and its gradient."""

import numpy as np

from tinyvit import functional as F
from tinyvit.exercises.exercise import Case, Exercise


def inputs(random, B, K):
    labels = random.permutation(np.arange(B) % K)  # distinct ones, as far as there are
    # A random ε, so that a constant 0.1 in the function is noticed.
    return random.standard_normal((B, K)), labels, round(float(random.uniform(0.11, 0.3)), 2)


def large_logits(random):
    _, labels, label_smoothing = inputs(random, 3, 4)
    logits = random.standard_normal((3, 4)) - 1000
    logits[np.arange(3), (labels + 1) % 4] = 1000.0
    return logits, labels, label_smoothing


def backward_inputs(random, B, K):
    return float(random.uniform(0.5, 2)), *inputs(random, B, K)


def large_logits_backward(random):
    return float(random.uniform(0.5, 2)), *large_logits(random)


SIZES = {"B": 3, "K": 4}, {"B": 7, "K": 5}  # in the second, labels occur twice
OVERFLOW = (
    "the logarithm of a probability that became 0",
    "exp overflows, or a probability is rounded to 0, and its logarithm is infinite. Take the logarithm of the "
    "softmax on paper first, and compute what is left.",
)
LARGE = "logits near 1000 and −1000"
FORWARD = Exercise(
    "cross_entropy",
    "The mean over samples of −Σₖ tₖ log softmax(logits)ₖ, where t is 1 − ε at the label, plus ε/K everywhere.",
    {"logits": "(B, K)", "labels": "(B,), ints from 0 to K − 1", "label_smoothing": "ε, a number"},
    {"loss": "a number"},
    right=lambda *arguments: F.cross_entropy(*arguments)[0],
    shown=(F.cross_entropy,),
    inputs=inputs,
    sizes=SIZES,
    traps=(Case("a single sample", lambda random: inputs(random, 1, 4)), Case(LARGE, large_logits, usual=OVERFLOW)),
)
BACKWARD = Exercise(
    "cross_entropy_backward",
    "The gradient of `cross_entropy`.",
    {
        "dy": "a number, the gradient of the loss (1 in training)",
        "logits": "(B, K)",
        "labels": "(B,), ints from 0 to K − 1",
        "label_smoothing": "ε, a number",
    },
    {"dlogits": "(B, K)"},
    right=lambda dy, *arguments: F.cross_entropy_backward(dy, F.cross_entropy(*arguments)[1]),
    shown=(F.cross_entropy, F.cross_entropy_backward),
    inputs=backward_inputs,
    sizes=SIZES,
    traps=(
        Case("a single sample", lambda random: backward_inputs(random, 1, 4)),
        Case(
            LARGE,
            large_logits_backward,
            usual=("the row's maximum is not subtracted", "exp(1000) overflows; subtract each row's maximum first."),
        ),
    ),
)
EXERCISES = FORWARD, BACKWARD

NO_MEAN = "the 1/B is missing", "The loss is the mean over samples, not their sum."
ALL_ENTRIES = (
    "the mean over all entries", "The mean goes over the B samples; over the K classes of a sample it is a sum.",
)  # fmt: skip

for exercise in EXERCISES:
    exercise.edit("label smoothing is forgotten", "The target is not 1 at the label and 0 elsewhere: ε of it is "
        "distributed over all classes.", "label_smoothing = 0")
    exercise.edit("label smoothing over the other classes only", "ε is distributed over all K classes, including the "
        "label's own.", ("/ K", "/ (K - 1)"), ("+= 1", "= 1"))
    exercise.edit("label smoothing doesn't take from the label", "The label keeps 1 − ε, so that t still sums to 1.",
        ("+= 1 - label_smoothing", "+= 1"))
    exercise.edit("the ε/K at the label is left out", "The label keeps 1 − ε and gets its share of what is distributed "
        "as well: 1 − ε + ε/K.", ("+= 1", "= 1"))
    exercise.edit("ε is not divided by K", "ε is distributed over the K classes: ε/K for each.", (" / K", ""))

FORWARD.edit(*NO_MEAN, (".sum(-1).mean()", ".sum()"))
FORWARD.edit(*ALL_ENTRIES, (".sum(-1).mean()", ".mean()"))
FORWARD.edit("only the label's share of the smoothed target", "With smoothing, every class contributes to the sum, not "
    "just the label.", ("label_smoothing / K", "0.0"))
FORWARD.edit("the logarithm is forgotten", "Sum the logarithms of the probabilities.",
    ("* log_probs", "* np.exp(log_probs)"))
FORWARD.edit("the softmax is forgotten", "Logits are not log probabilities yet: subtract log Σ exp.",
    ("* log_probs", "* logits"))
FORWARD.edit("a softmax over the batch", "The probabilities of a sample add up to 1: the softmax goes over the last "
    "axis.", ("-1, keepdims", "0, keepdims"))
FORWARD.edit("the binary logarithm", "The cross-entropy is taken with the natural logarithm.",
    (".mean()", ".mean() / np.log(2)"))

BACKWARD.edit(*NO_MEAN, (" / B", ""))
BACKWARD.edit(*ALL_ENTRIES, ("/ B", "/ logits.size"))
BACKWARD.edit("the labels' columns in all rows", "probs[:, labels] -= 1 subtracts from every sample at every sample's "
    "label. Each row has one label: probs[np.arange(B), labels].", ("np.arange(B), labels", ":, labels"))
BACKWARD.edit("the ε/K of the smoothed target is left out", "With smoothing, every class has a share ε/K in the "
    "target, not just the label 1 − ε.", ("label_smoothing / K", "0.0"))
BACKWARD.edit("the target is not subtracted", "The probabilities are the gradient of log Σ exp; the term −Σ tₖ xₖ has "
    "a gradient, too.", (" - targets", ""))
BACKWARD.edit("only the label's entry has a gradient", "Through the softmax the loss depends on all logits of a "
    "sample.", ("/ B", "/ B * np.eye(K)[labels]"))
BACKWARD.edit("the softmax's Jacobian is taken as diagonal", "Each logit changes all probabilities of its sample: the "
    "Jacobian is a full matrix.", ("(probs - targets)", "-targets * (1 - probs)"))
BACKWARD.edit("the gradient of the probabilities", "−t/p is the gradient of the probabilities; the softmax's backward "
    "gives that of the logits.", ("(probs - targets)", "-targets / probs"))
BACKWARD.edit("the softmax is forgotten", "Subtract the targets from the probabilities, not from the logits.",
    ("softmax(logits)", "logits"))
