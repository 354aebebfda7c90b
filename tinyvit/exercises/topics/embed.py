"""From patches to the tokens that the blocks read, and the gradients."""

import numpy as np

from tinyvit.exercises.exercise import exercise
from tinyvit.exercises.topics.linear import linear, linear_backward


def inputs(random, B, N, S, D):
    shapes = (B, N, S), (D, S), (D,), (1, 1, D), (1, N + 1, D)
    return tuple(random.standard_normal(shape) for shape in shapes)


@exercise(inputs, "B N=7,8,1 S D")
def embed(patches, weight, bias, cls_token, positions):
    """Project patches to tokens, put the class token in front, add the positions (Dosovitskiy et al. 2021, eq. 1).

      patches    (B, N, S), where S = C·P·Q
      weight     (D, S)
      bias       (D,)
      cls_token  (1, 1, D)
      positions  (1, N+1, D)

    returns
      tokens  (B, N+1, D)
    """
    tokens = linear(patches, weight, bias)
    first = np.repeat(cls_token, len(tokens), 0)
    return np.concatenate([first, tokens], 1) + positions


@exercise(forward=embed)
def embed_backward(dy, patches, weight):
    """The gradients of `embed`.

      dy       (B, N+1, D), the gradient of the tokens
      patches  (B, N, S), where S = C·P·Q
      weight   (D, S)

    returns
      dpatches    (B, N, S), where S = C·P·Q
      dweight     (D, S)
      dbias       (D,)
      dcls_token  (1, 1, D)
      dpositions  (1, N+1, D)
    """
    dpatches, dweight, dbias = linear_backward(dy[:, 1:], patches, weight)
    return dpatches, dweight, dbias, dy[:, :1].sum(0, keepdims=True), dy.sum(0, keepdims=True)
