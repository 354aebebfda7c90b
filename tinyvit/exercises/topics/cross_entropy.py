"""The cross-entropy of a classifier and its gradient."""

import numpy as np

from tinyvit.exercises.exercise import Case, exercise, lesson
from tinyvit.exercises.topics.softmax import softmax


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


SIZES = {"B": 3, "K": 4}, {"B": 7, "K": 5}  # in the second, labels occur twice
OVERFLOW = (
    "the logarithm of a probability that became 0",
    "exp overflows, or a probability is rounded to 0, and its logarithm is infinite. Take the logarithm of the "
    "softmax on paper first, and compute what is left.",
)
LARGE = "logits near 1000 and −1000"


@exercise(
    inputs, SIZES,
    traps=(Case("a single sample", lambda random: inputs(random, 1, 4)), Case(LARGE, large_logits, mistake=OVERFLOW)),
)
def cross_entropy(logits, labels, label_smoothing):
    """The mean over samples of −Σₖ tₖ log softmax(logits)ₖ, where t is 1 − ε at the label, plus ε/K everywhere.

      logits           (B, K)
      labels           (B,), ints from 0 to K − 1
      label_smoothing  ε, a number

    returns
      loss  a number
    """
    shifted = logits - logits.max(-1, keepdims=True)
    log_probs = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    B, K = logits.shape
    targets = np.full((B, K), label_smoothing / K)
    targets[np.arange(B), labels] += 1 - label_smoothing
    return -(targets * log_probs).sum(-1).mean()


lesson(cross_entropy, """
Package: tinyvit.functional.cross_entropy.cross_entropy

Hints:
  log softmax written out: which logarithm is left, and what must be subtracted so that nothing overflows?
  The mean over samples of −(1 − ε) · (label's log-probability) − ε · (mean of all log-probabilities).
  log pₖ = lₖ − m − log Σ exp(l − m), m the largest logit; loss = −1/B Σ_b Σₖ tₖ log pₖ, tₖ = (1 − ε) δ + ε/K.

Mistakes:
  label smoothing is forgotten
    The target is not 1 at the label and 0 elsewhere: ε of it is distributed over all classes.
    `label_smoothing = 0`
  label smoothing over the other classes only
    ε is distributed over all K classes, including the label's own.
    `/ K` → `/ (K - 1)`
    `+= 1` → `= 1`
  label smoothing doesn't take from the label
    The label keeps 1 − ε, so that t still sums to 1.
    `+= 1 - label_smoothing` → `+= 1`
  the ε/K at the label is left out
    The label keeps 1 − ε and gets its share of what is distributed as well: 1 − ε + ε/K.
    `+= 1` → `= 1`
  ε is not divided by K
    ε is distributed over the K classes: ε/K for each.
    ` / K` → ``
  the 1/B is missing
    The loss is the mean over samples, not their sum.
    `.sum(-1).mean()` → `.sum()`
  the mean over all entries
    The mean goes over the B samples; over the K classes of a sample it is a sum.
    `.sum(-1).mean()` → `.mean()`
  only the label's share of the smoothed target
    With smoothing, every class contributes to the sum, not just the label.
    `label_smoothing / K` → `0.0`
  the logarithm is forgotten
    Sum the logarithms of the probabilities.
    `* log_probs` → `* np.exp(log_probs)`
  the softmax is forgotten
    Logits are not log probabilities yet: subtract log Σ exp.
    `* log_probs` → `* logits`
  a softmax over the batch
    The probabilities of a sample add up to 1: the softmax goes over the last axis.
    `-1, keepdims` → `0, keepdims`
  the binary logarithm
    The cross-entropy is taken with the natural logarithm.
    `.mean()` → `.mean() / np.log(2)`
""")


@exercise(
    backward_inputs, SIZES,
    traps=(
        Case("a single sample", lambda random: backward_inputs(random, 1, 4)),
        Case(
            LARGE,
            lambda random: (float(random.uniform(0.5, 2)), *large_logits(random)),
            mistake=("the row's maximum is not subtracted", "exp(1000) overflows; subtract each row's maximum first."),
        ),
    ),
)
def cross_entropy_backward(dy, logits, labels, label_smoothing):
    """The gradient of `cross_entropy`.

      dy               a number, the gradient of the loss (1 in training)
      logits           (B, K)
      labels           (B,), ints from 0 to K − 1
      label_smoothing  ε, a number

    returns
      dlogits  (B, K)
    """
    B, K = logits.shape
    targets = np.full((B, K), label_smoothing / K)
    targets[np.arange(B), labels] += 1 - label_smoothing
    probs = softmax(logits)
    return dy * (probs - targets) / B


lesson(cross_entropy_backward, """
Package: tinyvit.functional.cross_entropy.cross_entropy, tinyvit.functional.cross_entropy.cross_entropy_backward

Hints:
  What is the derivative of log Σ exp(l) by one logit?
  dlogits = dy · (what was predicted − what was wanted) / number of samples.
  dl = dy (softmax(l) − t) / B, with t = ε/K everywhere and 1 − ε more at the label.

Holds:
  dlogits: the rows of dlogits should add up to 0, since both probabilities and targets add up to 1: one of the two
    doesn't
    `dlogits.sum(-1)`

Mistakes:
  label smoothing is forgotten
    The target is not 1 at the label and 0 elsewhere: ε of it is distributed over all classes.
    `label_smoothing = 0`
  label smoothing over the other classes only
    ε is distributed over all K classes, including the label's own.
    `/ K` → `/ (K - 1)`
    `+= 1` → `= 1`
  label smoothing doesn't take from the label
    The label keeps 1 − ε, so that t still sums to 1.
    `+= 1 - label_smoothing` → `+= 1`
  the ε/K at the label is left out
    The label keeps 1 − ε and gets its share of what is distributed as well: 1 − ε + ε/K.
    `+= 1` → `= 1`
  ε is not divided by K
    ε is distributed over the K classes: ε/K for each.
    ` / K` → ``
  the 1/B is missing
    The loss is the mean over samples, not their sum.
    ` / B` → ``
  the mean over all entries
    The mean goes over the B samples; over the K classes of a sample it is a sum.
    `/ B` → `/ logits.size`
  the labels' columns in all rows
    probs[:, labels] -= 1 subtracts from every sample at every sample's label. Each row has one label:
    probs[np.arange(B), labels].
    `np.arange(B), labels` → `:, labels`
  the ε/K of the smoothed target is left out
    With smoothing, every class has a share ε/K in the target, not just the label 1 − ε.
    `label_smoothing / K` → `0.0`
  the target is not subtracted
    The probabilities are the gradient of log Σ exp; the term −Σ tₖ xₖ has a gradient, too.
    ` - targets` → ``
  only the label's entry has a gradient
    Through the softmax the loss depends on all logits of a sample.
    `/ B` → `/ B * np.eye(K)[labels]`
  the softmax's Jacobian is taken as diagonal
    Each logit changes all probabilities of its sample: the Jacobian is a full matrix.
    `(probs - targets)` → `-targets * (1 - probs)`
  the gradient of the probabilities
    −t/p is the gradient of the probabilities; the softmax's backward gives that of the logits.
    `(probs - targets)` → `-targets / probs`
  the softmax is forgotten
    Subtract the targets from the probabilities, not from the logits.
    `softmax(logits)` → `logits`
""")
