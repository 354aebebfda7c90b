"""The gradient of a student's loss."""

import numpy as np

from tinyvit.exercises.exercise import exercise, lesson


def inputs(random, B, K):
    return 3 * random.standard_normal((B, K)), 3 * random.standard_normal((B, K)), float(random.uniform(1.5, 4))


@exercise(inputs, ({"B": 3, "K": 4}, {"B": 1, "K": 5}))
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


lesson(distillation_backward, """
Package: tinyvit.functional.distillation.distillation, tinyvit.functional.distillation.distillation_backward

Hints:
  What is the gradient of a cross-entropy whose targets are probabilities? Which factors come on top here?
  Something of q − p. One τ of τ² is used up by the chain rule: the logits are divided by τ.
  dlogits = τ (q − p) / (B K).

Mistakes:
  the sign is turned
    The loss falls where the student comes nearer: q − p, not p − q.
    `q - p` → `p - q`
  a factor τ is missing
    τ² stands before the sum, and the logits are divided by τ: τ is left.
    ` * temperature` → ``
  a factor τ too many
    The logits are divided by τ, and so is their gradient: of τ² only τ is left.
    ` * temperature` → ` * temperature**2`
  divided by the samples only
    The loss is divided by B K, the number of all logits.
    `logits.size` → `len(logits)`
  a sum, not a mean
    The loss is divided by B K, the number of all logits.
    ` / logits.size` → ``
  the probabilities of logits that are not divided by τ
    Both softmaxes are of logits / τ.
    ` / temperature` → ``
  the teacher's probabilities are not at the temperature
    Both softmaxes are of logits / τ.
    `teacher = teacher * temperature`
  the gradient for the teacher's class alone
    Soft targets are probabilities of all classes.
    `p / p.sum(1, keepdims=True)` → `np.eye(p.shape[1])[p.argmax(1)]`
""")
