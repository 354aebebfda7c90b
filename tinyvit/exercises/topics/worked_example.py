"""The gradients of the worked example, from the loss back to the patches and the class token."""

import numpy as np

from tinyvit.exercises.exercise import exercise
from tinyvit.exercises.topics.attention import attention
from tinyvit.exercises.topics.attention_backward import attention_backward
from tinyvit.exercises.topics.cross_entropy import cross_entropy_backward
from tinyvit.exercises.topics.layernorm import layernorm
from tinyvit.exercises.topics.layernorm_backward import layernorm_backward
from tinyvit.exercises.topics.linear import linear


def inputs(random):
    return (random.standard_normal((1, 4, 4)),)


@exercise(inputs, "", "")
def worked_example_backward(patches):
    """The gradients of the worked example's loss with respect to its patches and its class token. The loss comes from
    them so: the class token stands in front of the patches, and POSITIONS are added (z0); z1 = z0 + attention(z0, z0,
    z0) with one head; a layer norm with ε = 1e-6; of that the class token, which is token 0, times HEAD_WEIGHT plus
    HEAD_BIAS gives the logits; the loss is their cross-entropy with LABEL. The constants are in
    tinyvit.models.worked_example: CLS_TOKEN (1, 1, 4), POSITIONS (1, 5, 4), NORM_WEIGHT (4,), NORM_BIAS (4,),
    HEAD_WEIGHT (2, 4), HEAD_BIAS (2,), LABEL (1,).

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
