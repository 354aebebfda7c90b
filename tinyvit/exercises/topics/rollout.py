"""Attention rollout."""

import numpy as np

from tinyvit.exercises.exercise import exercise, lesson
from tinyvit.exercises.topics.softmax import softmax


def inputs(random, L, B, H, N):
    return (softmax(random.standard_normal((L, B, H, N, N))),)


@exercise(inputs, ({"L": 3, "B": 2, "H": 4, "N": 5}, {"L": 4, "B": 1, "H": 2, "N": 6}))
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


lesson(rollout, """
Hints:
  A token keeps half of itself by the residual. What is a layer's matrix then, and on which side is the next?
  R = A_L ⋯ A₂ A₁, with one matrix (N, N) for each layer and image.
  A_l = ½ mean over heads + ½ I; multiply each next layer from the left.

Mistakes:
  the identity alone
    Nothing has flowed yet: multiply by each layer.
    `layer @ result` → `0 * layer + identity`
  the product in the wrong order
    The first layer acts on the tokens first: it stands on the right.
    `layer @ result` → `result @ layer`
  the last layer is left out
    All layers have mixed the tokens; does the loop end one too early?
    `attention = attention[:-1]`
  the first layer is left out
    All layers have mixed the tokens, the first as well.
    `attention = attention[1:]`
  only the last layer
    It mixes the results of the layers before it: take the product of all.
    `attention = attention[-1:]`
  attention is transposed
    A row is a token that attends, a column one that is attended to.
    `attention = attention.mT`
  the residual connection is forgotten
    In every layer half of each token stays the same: + ½ I.
    `0.5 * attention` → `attention`
    ` + 0.5 * identity` → ``
  the identity is added, and nothing is halved
    The rows don't add up to 1 any more.
    `0.5 * ` → ``
  only the attention is halved
    The identity is halved as well, so that rows add up to 1.
    `0.5 * identity` → `identity`
  the sum over the heads
    The heads are averaged, so that rows still add up to 1.
    `.mean(2)` → `.sum(2)`
  the largest of the heads
    The paper takes their mean.
    `.mean(2)` → `.max(2)`
  the first head alone
    Take the mean over all heads.
    `.mean(2)` → `[:, :, 0]`
  each head is rolled out, and then the mean taken
    The heads of a layer write to the same tokens: average them in each layer.
    `.mean(2)` → ``
    `return result` → `return result.mean(1)`
  the layers are averaged, not multiplied
    Each layer mixes the result of the one before it: multiply them.
    `return result` → `return mixed.mean(0)`
  an elementwise product
    * multiplies entry by entry; use the matrix product @.
    `return result` → `return mixed.prod(0)`
  the mean over the images, too
    Each image has a rollout of its own: (B, N, N).
    `return result` → `return result.mean(0)`
""")
