"""The MLP and its gradients."""

from tinyvit.exercises.exercise import exercise, normal
from tinyvit.exercises.topics.gelu import gelu, gelu_backward
from tinyvit.exercises.topics.linear import linear, linear_backward


@exercise(normal("BND", "MD", "M", "DM", "D"), "B N D M")
def mlp(x, weight1, bias1, weight2, bias2):
    """y = GELU(x W₁ᵀ + b₁) W₂ᵀ + b₂, with the exact GELU.

      x        (B, N, D)
      weight1  W₁, (M, D)
      bias1    b₁, (M,)
      weight2  W₂, (D, M)
      bias2    b₂, (D,)

    returns
      y  (B, N, D)
    """
    a = gelu(linear(x, weight1, bias1))
    return linear(a, weight2, bias2)


@exercise(forward=mlp)
def mlp_backward(dy, x, weight1, bias1, weight2):
    """The gradients of y = GELU(x W₁ᵀ + b₁) W₂ᵀ + b₂, with the exact GELU.

      dy       (B, N, D), the gradient of y
      x        (B, N, D)
      weight1  W₁, (M, D)
      bias1    b₁, (M,)
      weight2  W₂, (D, M)

    returns
      dx        (B, N, D)
      dweight1  (M, D)
      dbias1    (M,)
      dweight2  (D, M)
      dbias2    (D,)
    """
    h = linear(x, weight1, bias1)
    da, dweight2, dbias2 = linear_backward(dy, gelu(h), weight2)
    dh = gelu_backward(da, h)
    return *linear_backward(dh, x, weight1), dweight2, dbias2
