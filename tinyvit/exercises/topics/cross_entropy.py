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


def log_softmax(logits):
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def one_hot(logits, labels):
    return np.eye(logits.shape[1])[labels]


def smoothed(logits, labels, label_smoothing):
    return one_hot(logits, labels) * (1 - label_smoothing) + label_smoothing / logits.shape[1]


def others_only(logits, labels, label_smoothing):
    """Smoothing over the other classes only."""
    hot = one_hot(logits, labels)
    return hot * (1 - label_smoothing) + (1 - hot) * label_smoothing / (logits.shape[1] - 1)


def added_only(logits, labels, label_smoothing):
    return one_hot(logits, labels) + label_smoothing / logits.shape[1]


NO_MEAN = "the 1/B is missing", "The loss is the mean over samples, not their sum."
NO_SMOOTHING = (
    "label smoothing is forgotten",
    "The target is not 1 at the label and 0 elsewhere: ε of it is distributed over all classes.",
)
ALL_ENTRIES = (
    "the mean over all entries",
    "The mean goes over the B samples; over the K classes of a sample it is a sum.",
)
OTHERS = (
    "label smoothing over the other classes only",
    "ε is distributed over all K classes, including the label's own.",
)
ADDED = (
    "label smoothing doesn't take from the label",
    "The label keeps 1 − ε, so that t still sums to 1.",
)


@FORWARD.mistake(*NO_MEAN)
def summed(logits, labels, label_smoothing):
    return -(smoothed(logits, labels, label_smoothing) * log_softmax(logits)).sum()


@FORWARD.mistake(*ALL_ENTRIES)
def mean_over_entries(logits, labels, label_smoothing):
    return -(smoothed(logits, labels, label_smoothing) * log_softmax(logits)).mean()


@FORWARD.misreading(*NO_SMOOTHING)
def not_smoothed(logits, labels, label_smoothing):
    return logits, labels, 0.0


@FORWARD.mistake(*OTHERS)
def smoothed_over_others(logits, labels, label_smoothing):
    return -(others_only(logits, labels, label_smoothing) * log_softmax(logits)).sum(-1).mean()


@FORWARD.mistake(*ADDED)
def smoothing_added(logits, labels, label_smoothing):
    return -(added_only(logits, labels, label_smoothing) * log_softmax(logits)).sum(-1).mean()


@FORWARD.mistake(
    "only the label's share of the smoothed target",
    "With smoothing, every class contributes to the sum, not just the label.",
)
def label_only(logits, labels, label_smoothing):
    return (1 - label_smoothing) * F.cross_entropy(logits, labels)[0]


LEFT_OUT = (
    "the ε/K at the label is left out",
    "The label keeps 1 − ε and gets its share of what is distributed as well: 1 − ε + ε/K.",
)
NOT_DIVIDED = "ε is not divided by K", "ε is distributed over the K classes: ε/K for each."


def label_without_share(logits, labels, label_smoothing):
    hot = one_hot(logits, labels)
    return hot * (1 - label_smoothing) + (1 - hot) * label_smoothing / logits.shape[1]


def not_divided(logits, labels, label_smoothing):
    return one_hot(logits, labels) * (1 - label_smoothing) + label_smoothing


@FORWARD.mistake(*LEFT_OUT)
def share_of_the_label_left_out(*arguments):
    return -(label_without_share(*arguments) * log_softmax(arguments[0])).sum(-1).mean()


@FORWARD.mistake(*NOT_DIVIDED)
def smoothing_not_divided(*arguments):
    return -(not_divided(*arguments) * log_softmax(arguments[0])).sum(-1).mean()


@FORWARD.mistake("the logarithm is forgotten", "Sum the logarithms of the probabilities.")
def without_logarithm(logits, labels, label_smoothing):
    return -(smoothed(logits, labels, label_smoothing) * F.softmax(logits)[0]).sum(-1).mean()


@FORWARD.mistake("the softmax is forgotten", "Logits are not log probabilities yet: subtract log Σ exp.")
def without_softmax(logits, labels, label_smoothing):
    return -(smoothed(logits, labels, label_smoothing) * logits).sum(-1).mean()


@FORWARD.mistake(
    "a softmax over the batch", "The probabilities of a sample add up to 1: the softmax goes over the last axis."
)
def softmax_over_batch(logits, labels, label_smoothing):
    return -(smoothed(logits, labels, label_smoothing) * log_softmax(logits.T).T).sum(-1).mean()


@FORWARD.mistake("the binary logarithm", "The cross-entropy is taken with the natural logarithm.")
def binary_logarithm(logits, labels, label_smoothing):
    return F.cross_entropy(logits, labels, label_smoothing)[0] / np.log(2)


@BACKWARD.mistake(*NO_MEAN)
def summed_backward(dy, logits, labels, label_smoothing):
    return dy * (F.softmax(logits)[0] - smoothed(logits, labels, label_smoothing))


@BACKWARD.mistake(*ALL_ENTRIES)
def mean_over_entries_backward(dy, logits, labels, label_smoothing):
    return summed_backward(dy, logits, labels, label_smoothing) / logits.size


@BACKWARD.misreading(*NO_SMOOTHING)
def not_smoothed_backward(dy, logits, labels, label_smoothing):
    return dy, logits, labels, 0.0


@BACKWARD.mistake(
    "the labels' columns in all rows",
    "probs[:, labels] -= 1 subtracts from every sample at every sample's label. Each row has one label: "
    "probs[np.arange(B), labels].",
)
def in_all_rows(dy, logits, labels, label_smoothing):
    targets = np.full(logits.shape, label_smoothing / logits.shape[1])
    targets[:, labels] += 1 - label_smoothing
    return dy * (F.softmax(logits)[0] - targets) / len(logits)


@BACKWARD.mistake(*OTHERS)
def smoothed_over_others_backward(dy, logits, labels, label_smoothing):
    return dy * (F.softmax(logits)[0] - others_only(logits, labels, label_smoothing)) / len(logits)


@BACKWARD.mistake(*ADDED)
def smoothing_added_backward(dy, logits, labels, label_smoothing):
    return dy * (F.softmax(logits)[0] - added_only(logits, labels, label_smoothing)) / len(logits)


@BACKWARD.mistake(*LEFT_OUT)
def share_of_the_label_left_out_backward(dy, *arguments):
    return dy * (F.softmax(arguments[0])[0] - label_without_share(*arguments)) / len(arguments[0])


@BACKWARD.mistake(*NOT_DIVIDED)
def smoothing_not_divided_backward(dy, *arguments):
    return dy * (F.softmax(arguments[0])[0] - not_divided(*arguments)) / len(arguments[0])


@BACKWARD.mistake(
    "the ε/K of the smoothed target is left out",
    "With smoothing, every class has a share ε/K in the target, not just the label 1 − ε.",
)
def label_share_only(dy, logits, labels, label_smoothing):
    return dy * (F.softmax(logits)[0] - (1 - label_smoothing) * one_hot(logits, labels)) / len(logits)


@BACKWARD.mistake(
    "the target is not subtracted",
    "The probabilities are the gradient of log Σ exp; the term −Σ tₖ xₖ has a gradient, too.",
)
def without_target(dy, logits, labels, label_smoothing):
    return dy * F.softmax(logits)[0] / len(logits)


@BACKWARD.mistake(
    "only the label's entry has a gradient", "Through the softmax the loss depends on all logits of a sample."
)
def label_only_backward(dy, logits, labels, label_smoothing):
    gradient = dy * (F.softmax(logits)[0] - smoothed(logits, labels, label_smoothing)) / len(logits)
    return gradient * one_hot(logits, labels)


@BACKWARD.mistake(
    "the softmax's Jacobian is taken as diagonal",
    "Each logit changes all probabilities of its sample: the Jacobian is a full matrix.",
)
def diagonal(dy, logits, labels, label_smoothing):
    return -dy * smoothed(logits, labels, label_smoothing) * (1 - F.softmax(logits)[0]) / len(logits)


@BACKWARD.mistake(
    "the gradient of the probabilities",
    "−t/p is the gradient of the probabilities; the softmax's backward gives that of the logits.",
)
def of_the_probabilities(dy, logits, labels, label_smoothing):
    return -dy * smoothed(logits, labels, label_smoothing) / F.softmax(logits)[0] / len(logits)


@BACKWARD.mistake("the softmax is forgotten", "Subtract the targets from the probabilities, not from the logits.")
def without_softmax_backward(dy, logits, labels, label_smoothing):
    return dy * (logits - smoothed(logits, labels, label_smoothing)) / len(logits)
