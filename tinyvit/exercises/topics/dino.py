"""Vectors of length 1, and the gradient of the loss between views."""

import numpy as np

from tinyvit.exercises.exercise import exercise, number_between
from tinyvit.exercises.topics.softmax import softmax


def normalise_inputs(random, B, N, D):
    return random.standard_normal((B, N, D)), 2 * random.standard_normal((B, N, D))


def loss_inputs(random, B, V, K):
    teacher = softmax(2 * random.standard_normal((B, 2, K)))
    return random.standard_normal((B, V, K)), teacher, float(random.uniform(0.3, 0.8))


@exercise(normalise_inputs, "B N D")
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


def centre_inputs(random, B, K):
    logits = 2 * random.standard_normal((B, 2, K))
    centre = random.standard_normal(K)
    return logits, centre, number_between(random, 0.3, 0.8), 0.9


@exercise(centre_inputs, "B K temperature:1 momentum:0", "logits centre")
def centre_teacher(logits, centre, temperature, momentum):
    """DINO's targets, and the centre after the step (Caron et al. 2021, eq. 4): the teacher's probabilities are the
    softmax of (z − c) / τ, and c ← m c + (1 − m) z̄, where z̄ is the mean of z over all samples and views.

      logits       (B, 2, K), z, the teacher's for two views of each sample
      centre       (K,), c
      temperature  τ
      momentum     m

    returns
      probs   (B, 2, K)
      centre  (K,), after the step
    """
    probs = softmax((logits - centre) / temperature)
    return probs, momentum * centre + (1 - momentum) * logits.mean((0, 1))


@exercise(loss_inputs, "B V K temperature:1", "logits")
def dino_loss(logits, teacher, temperature):
    """The mean, over samples and pairs of views t ≠ v, of the cross-entropy −Σ p[t] log softmax(z[v] / τ). The teacher
    has seen the first two of the V views.

      logits       (B, V, K), z, the student's
      teacher      (B, 2, K), p, probabilities
      temperature  τ

    returns
      loss  a number
    """
    shifted = (logits - logits.max(-1, keepdims=True)) / temperature
    sums = np.exp(shifted).sum(-1, keepdims=True)
    log_q = shifted - np.log(sums)
    B, V, _ = logits.shape
    total = 0.0
    for v in range(V):
        for t in range(2):
            if t != v:
                total -= (teacher[:, t] * log_q[:, v]).sum()
    return total / (B * (2 * V - 2))


@exercise(loss_inputs, "B V K temperature:1")
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
