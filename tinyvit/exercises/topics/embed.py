"""From patches to the tokens that the blocks read, and the gradients."""

import numpy as np

from tinyvit.exercises.exercise import exercise, lesson, normal_arrays
from tinyvit.exercises.topics.linear import linear, linear_backward


def inputs(random, B, N, S, D):
    return normal_arrays(random, (B, N, S), (D, S), (D,), (1, 1, D), (1, N + 1, D))


@exercise(inputs, ({"B": 2, "N": 3, "S": 5, "D": 4}, {"B": 1, "N": 2, "S": 4, "D": 7}), equal=dict.fromkeys("BNSD", 3))
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


lesson(embed, """
Package: tinyvit.models.vit.Embed

Hints:
  Which of the tokens get a position: those of the patches, or all?
  tokens = [class token; projected patches] + positions, with one class token for each image.
  z₀ = [x_class; x₁ E + b; …; x_N E + b] + E_pos, with E = weightᵀ. Repeat the class token B times.

Mistakes:
  weight is not transposed
    weight is (D, S): each output is the product of a patch with a row of weight.
    `weight = weight.T`
  the class token stands last
    It is put in front of the patches.
    `[first, tokens]` → `[tokens, first]`
  the class token gets no position
    The first position is its own; add the positions after putting the token in front.
    `tokens], 1) + positions` → `tokens + positions[:, 1:]], 1)`
  positions are forgotten
    Without them the blocks could not know where a patch is.
    ` + positions` → ``
  bias is forgotten
    The projection has a bias.
    `bias = 0 * bias`
  the projection's bias is added to the class token
    The class token isn't projected, and gets no bias.
    `weight, bias)` → `weight, 0)`
    ` + positions` → ` + bias + positions`
""")


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


lesson(embed_backward, """
Package: tinyvit.models.vit.Embed, tinyvit.functional.tokens.prepend_token_backward,
  tinyvit.functional.positions.add_positions_backward, tinyvit.functional.linear.linear_backward

Hints:
  The class token and the positions are the same for all images. What does that mean for their gradients?
  The first token's gradient belongs to the class token, the others' to the projection; all to the positions.
  dE_pos = Σ_b dy, dx_class = Σ_b dy of token 0; the rest of dy goes into the backward of a linear layer.

Mistakes:
  the broadcast positions are not summed
    Every sample got the same positions: their gradients add up over the batch.
    `, dy.sum(0, keepdims=True)` → `, dy`
  the broadcast class token is not summed
    Every sample got the same class token: its gradients add up over the batch.
    `dy[:, :1].sum(0, keepdims=True)` → `dy[:, :1]`
  the class token's gradient is summed over all tokens
    Only the first token of a sample is the class token.
    `dy[:, :1].sum(0, keepdims=True)` → `dy.sum((0, 1), keepdims=True)`
  the class token counts in the bias's gradient
    It wasn't projected: sum over the patches only.
    `return dpatches, dweight, dbias` → `return dpatches, dweight, dy.sum((0, 1))`
  the broadcast bias is not summed
    The bias was added to every patch, and gets a gradient from every patch.
    linear_backward: `dy_rows.sum(0)` → `dy`
  means in place of sums over the batch
    A parameter shared by all samples gets the sum of their gradients.
    `sum(0` → `mean(0`
    linear_backward: `dy_rows.sum(0)` → `dy_rows.mean(0)`
  the last token is taken for the class token
    The class token comes first.
    `dy[:, 1:]` → `dy[:, :-1]`
    `dy[:, :1]` → `dy[:, -1:]`
  wrong transpose in dweight
    The gradient of weight has weight's shape, (D, S).
    linear_backward: `dy_rows.T @ x_rows` → `x_rows.T @ dy_rows`
  wrong transpose in dpatches
    The forward multiplies by weightᵀ, the backward by weight.
    linear_backward: `dy @ weight` → `dy @ weight.T`
""")
