"""The gradient of a student's loss."""

import numpy as np

from tinyvit.exercises.exercise import exercise


def inputs(random, B, K):
    return 3 * random.standard_normal((B, K)), 3 * random.standard_normal((B, K)), float(random.uniform(1.5, 4))


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
