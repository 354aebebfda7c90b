"""The MLP and its gradients."""

from tinyvit.exercises.exercise import exercise, lesson, normal_arrays
from tinyvit.exercises.topics.gelu import gelu, gelu_backward
from tinyvit.exercises.topics.linear import linear, linear_backward


def inputs(random, B, N, D, M):
    return normal_arrays(random, (B, N, D), (M, D), (M,), (D, M), (D,))


@exercise(inputs, ({"B": 2, "N": 3, "D": 4, "M": 5}, {"B": 1, "N": 2, "D": 6, "M": 3}), equal=dict.fromkeys("BNDM", 3))
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


lesson(mlp, """
Package: tinyvit.nn.block.Mlp.forward

Hints:
  Between which two steps does the GELU stand, and is there one at the end?
  linear → GELU → linear.
  y = GELU(x W₁ᵀ + b₁) W₂ᵀ + b₂.

Steps:
  fc1   gelu.x        x W₁ᵀ + b₁
  gelu  mlp.a         GELU(fc1)
  fc2   mlp.returned  gelu W₂ᵀ + b₂

Mistakes:
  the tanh approximation of GELU
    The exact GELU is x Φ(x), with erf.
    gelu: `0.5 * erfc(-x * 0.5**0.5)` → `0.5 * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))`
  the activation is forgotten
    Two linear layers with nothing between them are one linear layer.
    `gelu(linear` → `(linear`
  a ReLU in place of the GELU
    max(x, 0) is the ReLU; a ViT's MLP has a GELU.
    gelu: `x * cdf` → `np.maximum(x, 0)`
  an activation after the second layer
    What the MLP adds to the residual stream may be negative: no activation there.
    `linear(a, weight2, bias2)` → `gelu(linear(a, weight2, bias2))`
  the activation before the bias
    The GELU is of x W₁ᵀ + b₁, its bias included.
    `gelu(linear(x, weight1, bias1))` → `gelu(x @ weight1.T) + bias1`
  bias1 is forgotten
    Both layers have a bias.
    `bias1 = 0`
  bias2 is forgotten
    Both layers have a bias.
    `bias2 = 0`
  the weights are not transposed
    weight1 is (M, D) and weight2 (D, M): each is (out, in), y = x Wᵀ + b.
    linear: `weight.T` → `weight`
""")


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


lesson(mlp_backward, """
Package: tinyvit.nn.block.Mlp.forward, tinyvit.nn.block.Mlp.backward, tinyvit.functional.linear.linear_backward,
  tinyvit.functional.gelu.gelu_backward

Hints:
  At which number is the GELU's derivative taken, at its input or at its output?
  second layer's backward → GELU's backward → first layer's backward.
  With h = x W₁ᵀ + b₁: da = dy W₂, dh = da GELU′(h), dx = dh W₁; dW₂ = Σ dyᵀ GELU(h), dW₁ = Σ dhᵀ x.

Steps:
  fc2   mlp_backward.da           dy W₂
  gelu  mlp_backward.dh           fc2 · GELU′ at x W₁ᵀ + b₁
  fc1   mlp_backward.returned[0]  gelu W₁, the gradient of x

Places:
  weight2: linear_backward 0
  weight1: linear_backward 1

Holds:
  dbias2: dbias2 should be dy, added up over all tokens
    `dbias2 - dy.sum((0, 1))`
  dx: Σ x·dx should equal Σ W₁·dW₁: both are Σ dh·(x W₁ᵀ)
    `(dx * x).sum() - (dweight1 * weight1).sum()`
  dbias1: x and dW₁ should fit to dbias1: the GELU's derivative stands in both, and at the same place
    `gelu_backward(dy @ weight2, x @ weight1.T + bias1).sum((0, 1)) - dbias1`

Mistakes:
  the activation's gradient is forgotten
    Between the two layers lies the GELU: multiply by its derivative.
    `gelu_backward(da, h)` → `da`
  the GELU's derivative is taken after the GELU
    Take it at the GELU's input, x W₁ᵀ + b₁, not at its output.
    `gelu_backward(da, h)` → `gelu_backward(da, gelu(h))`
  the derivative of the tanh approximation
    The exact GELU is x Φ(x), with erf.
    gelu: `0.5 * erfc(-x * 0.5**0.5)` → `0.5 * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))`
    gelu_backward: `0.5 * erfc(-x * 0.5**0.5)` → `0.5 * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))`
    gelu_backward: `np.exp(-0.5 * x * x) * (2 * np.pi) ** -0.5` →
      `2 * cdf * (1 - cdf) * (2 / np.pi) ** 0.5 * (1 + 3 * 0.044715 * x * x)`
  the ReLU's derivative
    The GELU is smooth: its derivative does not jump from 0 to 1.
    `gelu_backward(da, h)` → `da * (h > 0)`
  one half of the GELU's product rule
    x Φ(x) is a product of two functions of x.
    gelu_backward: ` + x * pdf` → ``
  dweight2 is made of what went into the GELU
    The input of the second layer is the GELU's output.
    `dy, gelu(h)` → `dy, h`
  bias1 is forgotten where the forward is computed again
    The GELU was of x W₁ᵀ + b₁, its bias included.
    `bias1 = 0`
  the broadcast biases are not summed
    Each was added to every token of every sample: sum over both axes.
    linear_backward: `dy_rows.sum(0)` → `dy`
  the broadcast biases are summed over samples only
    Each was added to every token of every sample.
    linear_backward: `dy_rows.sum(0)` → `dy.sum(0)`
  wrong transpose in the weights' gradients
    A weight's gradient has the weight's shape: rows are outputs.
    linear_backward: `dy_rows.T @ x_rows` → `x_rows.T @ dy_rows`
  wrong transpose of weight2
    The forward multiplies by W₂ᵀ, the backward by W₂.
    `gelu(h), weight2` → `gelu(h), weight2.T`
  wrong transpose of weight1
    The forward multiplies by W₁ᵀ, the backward by W₁.
    `dh, x, weight1` → `dh, x, weight1.T`
""")
