"""Vectors of length 1, and the gradient of the loss between views."""

import numpy as np

from tinyvit.exercises.exercise import exercise, lesson
from tinyvit.exercises.topics.softmax import softmax


def normalise_inputs(random, B, N, D):
    return random.standard_normal((B, N, D)), 2 * random.standard_normal((B, N, D))


def loss_inputs(random, B, V, K):
    teacher = softmax(2 * random.standard_normal((B, 2, K)))
    return random.standard_normal((B, V, K)), teacher, float(random.uniform(0.3, 0.8))


@exercise(normalise_inputs, ({"B": 2, "N": 3, "D": 4}, {"B": 1, "N": 2, "D": 5}))
def l2_normalise_backward(dy, x):
    """The gradient of y = x / ‖x‖, where ‖x‖ is the root of the sum of squares along the last axis.

      dy  (B, N, D), the gradient of y
      x   (B, N, D)

    returns
      dx  (B, N, D)
    """
    norm = np.sqrt((x * x).sum(-1, keepdims=True))
    y = x / norm
    return (dy - y * (dy * y).sum(-1, keepdims=True)) / norm


lesson(l2_normalise_backward, """
Package: tinyvit.functional.dino.l2_normalise, tinyvit.functional.dino.l2_normalise_backward

Hints:
  If x moves along itself, does y move?
  Take out of dy what lies along y, then think of how much longer x is than y.
  dx = (dy − y Σ dy y) / ‖x‖, with the sum along the last axis.

Mistakes:
  the length is taken as a constant
    ‖x‖ depends on every entry of x, and moves, too.
    ` - y * (dy * y).sum(-1, keepdims=True)` → ``
  not divided by the length
    y is x / ‖x‖: a long x moves y less.
    `)) / norm` → `))`
  x in place of y
    What is taken out lies along y = x / ‖x‖, of length 1.
    `y = x / norm` → `y = x`
  a sign
    What lies along y is taken out of dy, not added.
    `dy - y` → `dy + y`
""")


@exercise(loss_inputs, ({"B": 2, "V": 4, "K": 3}, {"B": 1, "V": 3, "K": 5}))
def dino_loss_backward(logits, teacher, temperature):
    """The gradient of the student's logits for the mean, over samples and pairs of views t ≠ v, of the cross-entropy
    −Σ p[t] log softmax(z[v] / τ). The teacher has seen the first two of the V views.

      logits       (B, V, K), the student's
      teacher      (B, 2, K), probabilities
      temperature  τ

    returns
      dlogits  (B, V, K)
    """
    q = np.exp((logits - logits.max(-1, keepdims=True)) / temperature)
    q /= q.sum(-1, keepdims=True)
    B, V, _ = logits.shape
    dlogits = np.zeros_like(logits)
    for v in range(V):
        for t in range(2):
            if t != v:
                dlogits[:, v] += (q[:, v] - teacher[:, t]) / (temperature * B * (2 * V - 2))
    return dlogits


lesson(dino_loss_backward, """
Package: tinyvit.functional.dino.dino_loss, tinyvit.functional.dino.dino_loss_backward

Hints:
  What is the gradient of one cross-entropy with soft targets? How many pairs is each view in?
  For each view, (number of its pairs) · q less the teacher's probabilities of the other views, added up.
  dz[v] = Σ over t ≠ v of (q[v] − p[t]) / (τ B (2V − 2)); the first two views are in one pair fewer.

Mistakes:
  a view is compared with itself, too
    Only pairs of different views count: t ≠ v.
    `t != v` → `True`
    `2 * V - 2` → `2 * V`
  a factor 1/τ is missing
    The logits are divided by τ, and so is their gradient.
    `temperature * B` → `B`
  a sum over the pairs, not a mean
    The mean is over B samples and 2V − 2 pairs of views each.
    ` * (2 * V - 2)` → ``
  a sum over the samples, not a mean
    The mean is over B samples and 2V − 2 pairs of views each.
    `* B * ` → `* `
  the sign is turned
    The loss falls where the student comes nearer: q − p, not p − q.
    `q[:, v] - teacher[:, t]` → `teacher[:, t] - q[:, v]`
""")
