"""The cross-entropy of a classifier and its gradient."""

import numpy as np

from tinyvit.exercises.exercise import exercise
from tinyvit.exercises.topics.softmax import softmax


def inputs(random, B, K):
    labels = random.permutation(np.arange(B) % K)  # some of them twice
    # A random ε, so that a constant 0.1 in the function is noticed.
    return random.standard_normal((B, K)), labels, round(float(random.uniform(0.11, 0.3)), 2)


@exercise(inputs, "K B label_smoothing:0")
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


@exercise(forward=cross_entropy)
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
