"""The MLP and its gradients."""

from tinyvit import functional as F
from tinyvit.exercises.exercise import Exercise
from tinyvit.exercises.topics import gelu
from tinyvit.nn.block import Mlp


def inputs(random, B, N, D, M):
    shapes = (B, N, D), (M, D), (M,), (D, M), (D,)
    return tuple(random.standard_normal(shape) for shape in shapes)


def backward_inputs(random, B, N, D, M):
    x, weight1, bias1, weight2, _ = inputs(random, B, N, D, M)
    return random.standard_normal(x.shape), x, weight1, bias1, weight2


def forward(x, weight1, bias1, weight2, bias2):
    h, _ = F.linear(x, weight1, bias1)
    a, _ = F.gelu(h)
    return F.linear(a, weight2, bias2)[0]


def backward(dy, x, weight1, bias1, weight2):
    h, c_fc1 = F.linear(x, weight1, bias1)
    a, c_act = F.gelu(h)
    da, dweight2, dbias2 = F.linear_backward(dy, F.linear(a, weight2, weight2[:, 0])[1])
    dx, dweight1, dbias1 = F.linear_backward(F.gelu_backward(da, c_act), c_fc1)
    return dx, dweight1, dbias1, dweight2, dbias2


SIZES = {"B": 2, "N": 3, "D": 4, "M": 5}, {"B": 1, "N": 2, "D": 6, "M": 3}
EQUAL = {"B": 3, "N": 3, "D": 3, "M": 3}
ARGUMENTS = {"x": "(B, N, D)", "weight1": "W₁, (M, D)", "bias1": "b₁, (M,)", "weight2": "W₂, (D, M)"}
FORWARD = Exercise(
    "mlp",
    "y = GELU(x W₁ᵀ + b₁) W₂ᵀ + b₂, with the exact GELU.",
    {**ARGUMENTS, "bias2": "b₂, (D,)"},
    {"y": "(B, N, D)"},
    right=forward,
    shown=(Mlp.forward,),
    inputs=inputs,
    sizes=SIZES,
    equal=EQUAL,
)
BACKWARD = Exercise(
    "mlp_backward",
    "The gradients of y = GELU(x W₁ᵀ + b₁) W₂ᵀ + b₂, with the exact GELU.",
    {"dy": "(B, N, D), the gradient of y", **ARGUMENTS},
    {
        "dx": "(B, N, D)",
        "dweight1": "(M, D)",
        "dbias1": "(M,)",
        "dweight2": "(D, M)",
        "dbias2": "(D,)",
    },
    right=backward,
    shown=(Mlp.forward, Mlp.backward, F.linear_backward, F.gelu_backward),
    inputs=backward_inputs,
    sizes=SIZES,
    equal=EQUAL,
)
EXERCISES = FORWARD, BACKWARD

DH, DBIAS = "gelu_backward(da, h)", "dy_rows.sum(0)"
NO_BIAS = "Both layers have a bias."

FORWARD.edit("the tanh approximation of GELU", "The exact GELU is x Φ(x), with erf.", ("gelu", *gelu.TANH_CDF))
FORWARD.edit("the activation is forgotten", "Two linear layers with nothing between them are one linear layer.",
    ("gelu(linear", "(linear"))
FORWARD.edit("a ReLU in place of the GELU", "max(x, 0) is the ReLU; a ViT's MLP has a GELU.",
    ("gelu", "x * cdf", "np.maximum(x, 0)"))
FORWARD.edit("an activation after the second layer", "What the MLP adds to the residual stream may be negative: no "
    "activation there.", ("linear(a, weight2, bias2)", "gelu(linear(a, weight2, bias2))"))
FORWARD.edit("the activation before the bias", "The GELU is of x W₁ᵀ + b₁, its bias included.",
    ("gelu(linear(x, weight1, bias1))", "gelu(x @ weight1.T) + bias1"))
FORWARD.edit("bias1 is forgotten", NO_BIAS, "bias1 = 0")
FORWARD.edit("bias2 is forgotten", NO_BIAS, "bias2 = 0")
FORWARD.edit("the weights are not transposed", "weight1 is (M, D) and weight2 (D, M): each is (out, in), y = x Wᵀ + b.",
    ("linear", "weight.T", "weight"))

# -- backward -----------------------------------------------------------------------------------------------------

BACKWARD.edit("the activation's gradient is forgotten", "Between the two layers lies the GELU: multiply by its "
    "derivative.", (DH, "da"))
BACKWARD.edit("the GELU's derivative is taken after the GELU", "Take it at the GELU's input, x W₁ᵀ + b₁, not at its "
    "output.", (DH, "gelu_backward(da, gelu(h))"))
BACKWARD.edit("the derivative of the tanh approximation", "The exact GELU is x Φ(x), with erf.",
    ("gelu", *gelu.TANH_CDF), ("gelu_backward", *gelu.TANH_CDF), ("gelu_backward", *gelu.TANH_PDF))
BACKWARD.edit("the ReLU's derivative", "The GELU is smooth: its derivative does not jump from 0 to 1.",
    (DH, "da * (h > 0)"))
BACKWARD.edit("one half of the GELU's product rule", "x Φ(x) is a product of two functions of x.",
    ("gelu_backward", " + x * pdf", ""))
BACKWARD.edit("dweight2 is made of what went into the GELU", "The input of the second layer is the GELU's output.",
    ("dy, gelu(h)", "dy, h"))
BACKWARD.edit("bias1 is forgotten where the forward is computed again", "The GELU was of x W₁ᵀ + b₁, its bias "
    "included.", "bias1 = 0")
BACKWARD.edit("the broadcast biases are not summed", "Each was added to every token of every sample: sum over both "
    "axes.", ("linear_backward", DBIAS, "dy"))
BACKWARD.edit("the broadcast biases are summed over samples only", "Each was added to every token of every sample.",
    ("linear_backward", DBIAS, "dy.sum(0)"))
BACKWARD.edit("wrong transpose in the weights' gradients", "A weight's gradient has the weight's shape: rows are "
    "outputs.", ("linear_backward", "dy_rows.T @ x_rows", "x_rows.T @ dy_rows"))
BACKWARD.edit("wrong transpose of weight2", "The forward multiplies by W₂ᵀ, the backward by W₂.",
    ("gelu(h), weight2", "gelu(h), weight2.T"))
BACKWARD.edit("wrong transpose of weight1", "The forward multiplies by W₁ᵀ, the backward by W₁.",
    ("dh, x, weight1", "dh, x, weight1.T"))
