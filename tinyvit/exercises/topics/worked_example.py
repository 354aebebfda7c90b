"""The gradients of the worked example, from the loss back to the patches and the class token."""

import numpy as np

from tinyvit.exercises.exercise import exercise, lesson
from tinyvit.exercises.topics.attention import attention
from tinyvit.exercises.topics.attention_backward import attention_backward
from tinyvit.exercises.topics.cross_entropy import cross_entropy_backward
from tinyvit.exercises.topics.layernorm import layernorm
from tinyvit.exercises.topics.layernorm_backward import layernorm_backward
from tinyvit.exercises.topics.linear import linear


def inputs(random):
    return (random.standard_normal((1, 4, 4)),)


@exercise(inputs, ({}, {}))
def worked_example_backward(patches):
    """The gradients of the worked example's loss: of its patches and its class token. All else that it needs is in
    tinyvit.models.worked_example: CLS_TOKEN, POSITIONS, NORM_WEIGHT, NORM_BIAS, HEAD_WEIGHT, HEAD_BIAS, LABEL.

      patches  (1, 4, 4)

    returns
      dpatches    (1, 4, 4)
      dcls_token  (1, 1, 4)
    """
    from tinyvit.models import worked_example as example

    cls_token = np.repeat(example.CLS_TOKEN, len(patches), 0)
    z0 = np.concatenate([cls_token, patches], 1) + example.POSITIONS
    z1 = z0 + attention(z0, z0, z0)
    feature = layernorm(z1, example.NORM_WEIGHT, example.NORM_BIAS, 1e-6)[:, 0]
    logits = linear(feature, example.HEAD_WEIGHT, example.HEAD_BIAS)

    dlogits = cross_entropy_backward(1.0, logits, example.LABEL, 0.0)
    dnormed = np.zeros_like(z1)
    dnormed[:, 0] = dlogits @ example.HEAD_WEIGHT
    dz1, _, _ = layernorm_backward(dnormed, z1, example.NORM_WEIGHT, 1e-6)
    dq, dk, dv = attention_backward(dz1, z0, z0, z0)
    dz0 = dz1 + dq + dk + dv
    return dz0[:, 1:], dz0[:, :1].sum(0, keepdims=True)


lesson(worked_example_backward, """
Package: tinyvit.models.worked_example.forward, tinyvit.models.worked_example.backward

Hints:
  q, k, v and the residual are all z⁰. From how many places does z⁰ get a gradient?
  π − target → head → class token's row → layer norm → residual + attention's three gradients → rows.
  dz¹ = LN′(dfeature in row 0), dz⁰ = dz¹ + dq + dk + dv, dcls_token = row 0 of dz⁰, dpatches the others.

Mistakes:
  the way through the keys is forgotten
    A patch is looked at for what it holds, too: its key stands in the class token's scores, and through them it
    decides how much is taken from every other.
    ` + dk` → ``
  the way through the values is forgotten
    The class token's output is a weighted sum of the patches: each gets the gradient times its weight.
    ` + dv` → ``
  the way through the queries is forgotten
    The class token asks: its query stands in all its scores, and each score's gradient comes back to it.
    ` + dq` → ``
  the residual's gradient is forgotten
    z¹ is z⁰ plus the attention: dz¹ also goes past the attention, to z⁰.
    `dz1 + dq` → `dq`
  the scale is forgotten
    The scores were multiplied by 1/√4, and so is their gradient.
    attention_backward: `scores) * scale` → `scores)`
  the Jacobian of the softmax is taken as diagonal
    p(1 − p) is the derivative with respect to its own score; but each score changes the whole row.
    softmax_backward: `(dy - (dy * probs).sum(-1, keepdims=True))` → `dy * (1 - probs)`
  the layer norm's means are forgotten
    Mean and spread depend on every number of the token: what is left of the gradient has the mean 0, and no part
    along the normalised token.
    layernorm_backward: ` - mean_g - xhat * mean_gxhat` → ``
  the gradient enters at every token
    The head reads the class token alone; the patches' rows are zero there.
    `dnormed[:, 0] =` → `dnormed[:] =`
  the target is not subtracted
    The gradient of the logits is π minus 1 at the right class.
    cross_entropy_backward: ` - targets` → ``
""")
