"""The MLP and its gradients."""

import numpy as np

from tinyvit import functional as F
from tinyvit.exercises.exercise import Exercise
from tinyvit.nn.block import Mlp


def inputs(random, B, N, D, M):
    shapes = (B, N, D), (M, D), (M,), (D, M), (D,)
    return tuple(random.standard_normal(shape) for shape in shapes)


def backward_inputs(random, B, N, D, M):
    x, weight1, bias1, weight2, _ = inputs(random, B, N, D, M)
    return random.standard_normal(x.shape), x, weight1, bias1, weight2


def forward(x, weight1, bias1, weight2, bias2, activation=F.gelu):
    h, _ = F.linear(x, weight1, bias1)
    a, _ = activation(h)
    return F.linear(a, weight2, bias2)[0]


def backward(dy, x, weight1, bias1, weight2, activation=F.gelu):
    h, c_fc1 = F.linear(x, weight1, bias1)
    a, c_act = activation(h)
    da, dweight2, dbias2 = F.linear_backward(dy, F.linear(a, weight2, weight2[:, 0])[1])
    dx, dweight1, dbias1 = F.linear_backward(activation.backward(da, c_act), c_fc1)
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


@FORWARD.mistake("the tanh approximation of GELU", "The exact GELU is x Φ(x), with erf.")
def tanh_form(*arguments):
    return forward(*arguments, activation=F.gelu_tanh)


@FORWARD.mistake("the activation is forgotten", "Two linear layers with nothing between them are one linear layer.")
def without_activation(x, weight1, bias1, weight2, bias2):
    return (x @ weight1.T + bias1) @ weight2.T + bias2


@FORWARD.mistake("a ReLU in place of the GELU", "max(x, 0) is the ReLU; a ViT's MLP has a GELU.")
def relu(x, weight1, bias1, weight2, bias2):
    return np.maximum(x @ weight1.T + bias1, 0) @ weight2.T + bias2


@FORWARD.mistake(
    "an activation after the second layer",
    "What the MLP adds to the residual stream may be negative: no activation there.",
)
def activated_twice(*arguments):
    return F.gelu(forward(*arguments))[0]


@FORWARD.mistake("the activation before the bias", "The GELU is of x W₁ᵀ + b₁, its bias included.")
def bias_after_activation(x, weight1, bias1, weight2, bias2):
    return (F.gelu(x @ weight1.T)[0] + bias1) @ weight2.T + bias2


@FORWARD.misreading("bias1 is forgotten", "Both layers have a bias.")
def without_bias1(x, weight1, bias1, weight2, bias2):
    return x, weight1, 0 * bias1, weight2, bias2


@FORWARD.misreading("bias2 is forgotten", "Both layers have a bias.")
def without_bias2(x, weight1, bias1, weight2, bias2):
    return x, weight1, bias1, weight2, 0 * bias2


@FORWARD.mistake(
    "the weights are not transposed", "weight1 is (M, D) and weight2 (D, M): each is (out, in), y = x Wᵀ + b."
)
def not_transposed(x, weight1, bias1, weight2, bias2):
    return forward(x, weight1.T, bias1, weight2.T, bias2)


# -- backward -----------------------------------------------------------------------------------------------------


def first_layer(dh, x, weight1):
    """The gradients of the first layer, from that of its output."""
    dx, dweight1, dbias1 = F.linear_backward(dh, F.linear(x, weight1, weight1[:, 0])[1])
    return {"dx": dx, "dweight1": dweight1, "dbias1": dbias1}


@BACKWARD.mistake(
    "the activation's gradient is forgotten", "Between the two layers lies the GELU: multiply by its derivative."
)
def without_activation_backward(dy, x, weight1, bias1, weight2):
    return first_layer(dy @ weight2, x, weight1)


@BACKWARD.mistake(
    "the GELU's derivative is taken after the GELU",
    "Take it at the GELU's input, x W₁ᵀ + b₁, not at its output.",
)
def derivative_of_the_output(dy, x, weight1, bias1, weight2):
    a, _ = F.gelu(x @ weight1.T + bias1)
    return first_layer(F.gelu_backward(dy @ weight2, F.gelu(a)[1]), x, weight1)


@BACKWARD.mistake("the derivative of the tanh approximation", "The exact GELU is x Φ(x), with erf.")
def tanh_derivative(*arguments):
    return backward(*arguments, activation=F.gelu_tanh)


@BACKWARD.mistake("the ReLU's derivative", "The GELU is smooth: its derivative does not jump from 0 to 1.")
def relu_derivative(dy, x, weight1, bias1, weight2):
    return first_layer(dy @ weight2 * (x @ weight1.T + bias1 > 0), x, weight1)


@BACKWARD.mistake("one half of the GELU's product rule", "x Φ(x) is a product of two functions of x.")
def half_a_derivative(dy, x, weight1, bias1, weight2):
    cdf = F.gelu(x @ weight1.T + bias1)[1].cdf
    return first_layer(dy @ weight2 * cdf, x, weight1)


@BACKWARD.mistake("dweight2 is made of what went into the GELU", "The input of the second layer is the GELU's output.")
def before_the_activation(dy, x, weight1, bias1, weight2):
    h, _ = F.linear(x, weight1, bias1)
    return {"dweight2": np.einsum("bnd,bnm->dm", dy, h)}


@BACKWARD.misreading(
    "bias1 is forgotten where the forward is computed again", "The GELU was of x W₁ᵀ + b₁, its bias included."
)
def without_bias1_backward(dy, x, weight1, bias1, weight2):
    return dy, x, weight1, 0 * bias1, weight2


@BACKWARD.mistake(
    "the broadcast biases are not summed", "Each was added to every token of every sample: sum over both axes."
)
def biases_not_summed(dy, x, weight1, bias1, weight2):
    return {"dbias1": dh_of(dy, x, weight1, bias1, weight2), "dbias2": dy}


def dh_of(dy, x, weight1, bias1, weight2):
    return F.gelu_backward(dy @ weight2, F.gelu(x @ weight1.T + bias1)[1])


@BACKWARD.mistake("the broadcast biases are summed over samples only", "Each was added to every token of every sample.")
def biases_of_each_token(dy, x, weight1, bias1, weight2):
    return {"dbias1": dh_of(dy, x, weight1, bias1, weight2).sum(0), "dbias2": dy.sum(0)}


@BACKWARD.mistake(
    "wrong transpose in the weights' gradients", "A weight's gradient has the weight's shape: rows are outputs."
)
def dweights_transposed(*arguments):
    _, dweight1, _, dweight2, _ = backward(*arguments)
    return {"dweight1": dweight1.T, "dweight2": dweight2.T}


@BACKWARD.mistake("wrong transpose of weight2", "The forward multiplies by W₂ᵀ, the backward by W₂.")
def weight2_transposed(dy, x, weight1, bias1, weight2):
    return first_layer(dh_of(dy, x, weight1, bias1, weight2.T), x, weight1)


@BACKWARD.mistake("wrong transpose of weight1", "The forward multiplies by W₁ᵀ, the backward by W₁.")
def weight1_transposed(dy, x, weight1, bias1, weight2):
    return {"dx": dh_of(dy, x, weight1, bias1, weight2) @ weight1.T}
