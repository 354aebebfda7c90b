"""A student's loss, and its gradient."""

import numpy as np

from tinyvit.exercises.exercise import exercise


def inputs(random, B, K):
    return 3 * random.standard_normal((B, K)), 3 * random.standard_normal((B, K)), float(random.uniform(1.5, 4))


def log_softmax(x):
    """The logarithms of a softmax's probabilities; x − log Σ exp(x), which is right where a probability is 0."""
    shifted = x - x.max(1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))


@exercise(inputs, "B K temperature:1", "logits teacher")
def distillation(logits, teacher, temperature):
    """A student's loss: τ² / (B K) · Σ p log(p / q), summed over samples and classes, with p = softmax(teacher / τ) and
    q = softmax(logits / τ). Where p is 0 the term counts as 0 (Hinton et al. 2015, section 2).

      logits       (B, K), the student's
      teacher      (B, K), the teacher's logits
      temperature  τ

    returns
      loss  a number
    """
    log_q = log_softmax(logits / temperature)
    log_p = log_softmax(teacher / temperature)
    divergence = (np.exp(log_p) * (log_p - log_q)).sum()
    return temperature**2 * divergence / logits.size


@exercise(inputs, "B K temperature:1", "logits teacher")
def distillation_backward(logits, teacher, temperature):
    """The gradient of a student's logits for the loss τ² / (B K) · Σ p log(p / q), summed over samples and classes,
    with p = softmax(teacher / τ) and q = softmax(logits / τ). The teacher's logits are constants.

      logits       (B, K), the student's
      teacher      (B, K), the teacher's logits
      temperature  τ

    returns
      dlogits  (B, K)
    """
    q, p = (np.exp((x - x.max(1, keepdims=True)) / temperature) for x in (logits, teacher))
    q, p = q / q.sum(1, keepdims=True), p / p.sum(1, keepdims=True)
    return (q - p) * temperature / logits.size
