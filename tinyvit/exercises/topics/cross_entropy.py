"""The cross-entropy of a classifier and its gradient."""

import numpy as np

from tinyvit.exercises.exercise import Case, exercise
from tinyvit.exercises.topics.softmax import softmax


def inputs(random, B, K):
    labels = random.permutation(np.arange(B) % K)  # distinct ones, as far as there are
    # A random ε, so that a constant 0.1 in the function is noticed.
    return random.standard_normal((B, K)), labels, round(float(random.uniform(0.11, 0.3)), 2)


def single_sample(random):
    return inputs(random, 1, 4)


def large_logits(random):
    _, labels, label_smoothing = inputs(random, 3, 4)
    logits = random.standard_normal((3, 4)) - 1000
    logits[np.arange(3), (labels + 1) % 4] = 1000.0
    return logits, labels, label_smoothing


def with_dy(draw):
    return lambda random, **sizes: (float(random.uniform(0.5, 2)), *draw(random, **sizes))


SIZES = "B=3 K=4", "B=7 K=5"  # in the second, labels occur twice
OVERFLOW = (
    "the logarithm of a probability that became 0",
    "exp overflows, or a probability is rounded to 0, and its logarithm is infinite. Take the logarithm of the "
    "softmax on paper first, and compute what is left.",
)
MAXIMUM = "the row's maximum is not subtracted", "exp(1000) overflows; subtract each row's maximum first."
SINGLE, LARGE = "a single sample", "logits near 1000 and −1000"


@exercise(
    inputs, SIZES,
    traps=(Case(SINGLE, single_sample), Case(LARGE, large_logits, mistake=OVERFLOW)),
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


@exercise(
    with_dy(inputs), SIZES,
    traps=(Case(SINGLE, with_dy(single_sample)), Case(LARGE, with_dy(large_logits), mistake=MAXIMUM)),
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
