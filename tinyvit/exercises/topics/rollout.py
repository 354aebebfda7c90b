"""Attention rollout."""

import numpy as np

from tinyvit.exercises.exercise import exercise
from tinyvit.exercises.topics.softmax import softmax


def inputs(random, B, N, H, L):
    return (softmax(random.standard_normal((L, B, H, N, N))),)


@exercise(inputs, "B N H L=5,3,1", "")
def rollout(attention):
    """Attention rollout (Abnar & Zuidema 2020): the product of all layers' ½ (mean over the heads) + ½ I, the last one
    on the left.

      attention  (L, B, H, N, N): L layers, each row adding up to 1

    returns
      R  (B, N, N)
    """
    result = identity = np.eye(attention.shape[-1])
    mixed = 0.5 * attention.mean(2) + 0.5 * identity                           # (L, B, N, N)
    for layer in mixed:
        result = layer @ result
    return result
