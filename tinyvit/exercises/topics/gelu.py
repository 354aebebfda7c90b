"""GELU and its gradient."""

import numpy as np

from tinyvit import functional as F
from tinyvit.backend import erf
from tinyvit.exercises.exercise import Exercise


def inputs(random, **sizes):
    return (2 * random.standard_normal(tuple(sizes.values())),)


def backward_inputs(random, **sizes):
    return random.standard_normal(tuple(sizes.values())), *inputs(random, **sizes)


SIZES = {"B": 3, "N": 4}, {"B": 2, "N": 1, "M": 7}
FORWARD = Exercise(
    "gelu",
    "The exact GELU, x Φ(x), where Φ is the distribution function of the standard normal distribution.",
    {"x": "an array of any shape"},
    {"y": "as x"},
    right=lambda x: F.gelu(x)[0],
    shown=(F.gelu,),
    inputs=inputs,
    sizes=SIZES,
)
BACKWARD = Exercise(
    "gelu_backward",
    "The gradient of the exact GELU, x Φ(x).",
    {"dy": "the gradient of the GELU, as x", "x": "an array of any shape"},
    {"dx": "as x"},
    right=lambda dy, x: F.gelu_backward(dy, F.gelu(x)[1]),
    shown=(F.gelu_backward,),
    inputs=backward_inputs,
    sizes=SIZES,
)
EXERCISES = FORWARD, BACKWARD


def cdf(x):
    return 0.5 * (1 + erf(x / 2**0.5))


def pdf(x):
    return np.exp(-0.5 * x * x) / (2 * np.pi) ** 0.5


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


TANH = (
    "the tanh approximation",
    "It differs from the exact GELU by up to 4.7e-4; use the exact one, with erf.",
)
SIGMOID = (
    "the sigmoid approximation",
    "x σ(1.702 x) differs from the exact GELU by up to 0.02; use the exact one, with erf.",
)


@FORWARD.mistake(*TANH)
def tanh_form(x):
    return F.gelu_tanh(x)[0]


@FORWARD.mistake(*SIGMOID)
def sigmoid_form(x):
    return x * sigmoid(1.702 * x)


@FORWARD.mistake("a SiLU", "x σ(x) is the SiLU, or swish.")
def silu(x):
    return x * sigmoid(x)


@FORWARD.mistake("a ReLU", "max(x, 0) is the ReLU; the GELU is smooth.")
def relu(x):
    return np.maximum(x, 0)


@FORWARD.mistake("the √2 in erf is forgotten", "Φ(x) takes erf at x/√2.")
def without_root(x):
    return 0.5 * x * (1 + erf(x))


@FORWARD.mistake("multiplied by √2 in erf", "Φ(x) takes erf at x divided by √2.")
def times_root(x):
    return 0.5 * x * (1 + erf(x * 2**0.5))


@FORWARD.mistake("the ½ is forgotten", "Φ(x) is half of 1 + erf: a probability, between 0 and 1.")
def without_half(x):
    return 2 * x * cdf(x)


@FORWARD.mistake("the 1 of 1 + erf is forgotten", "Φ(x) is a probability, between 0 and 1; erf goes from −1 to 1.")
def without_one(x):
    return 0.5 * x * erf(x / 2**0.5)


@FORWARD.mistake("not multiplied by x", "Φ(x) is only the gate; GELU is x Φ(x).")
def only_gate(x):
    return cdf(x)


@BACKWARD.mistake(
    "one half of the product rule",
    "x Φ(x) is a product of two functions of x; Φ(x) is the term from the derivative of x alone.",
)
def only_cdf(dy, x):
    return dy * cdf(x)


@BACKWARD.mistake(
    "the other half of the product rule", "x Φ′(x) is there; the term from the derivative of x, Φ(x), is missing."
)
def only_pdf(dy, x):
    return dy * x * pdf(x)


@BACKWARD.mistake("the density is not multiplied by x", "In the product rule, Φ's derivative is multiplied by x.")
def density_alone(dy, x):
    return dy * (cdf(x) + pdf(x))


@BACKWARD.mistake("the derivative of the tanh approximation", TANH[1])
def tanh_derivative(dy, x):
    return F.gelu_tanh_backward(dy, F.gelu_tanh(x)[1])


@BACKWARD.mistake("the derivative of the sigmoid approximation", SIGMOID[1])
def sigmoid_derivative(dy, x):
    gate = sigmoid(1.702 * x)
    return dy * gate * (1 + 1.702 * x * (1 - gate))


@BACKWARD.mistake("the ReLU's derivative", "The GELU is smooth: its derivative does not jump from 0 to 1.")
def relu_derivative(dy, x):
    return dy * (x > 0)


@BACKWARD.mistake("1/√(2π) is forgotten", "Φ's derivative is the normal density, whose integral is 1.")
def without_constant(dy, x):
    return dy * (cdf(x) + x * np.exp(-0.5 * x * x))


@BACKWARD.mistake("the ½ in the exponent is forgotten", "The normal density falls as exp(−x²/2).")
def without_half_in_exponent(dy, x):
    return dy * (cdf(x) + x * np.exp(-x * x) / (2 * np.pi) ** 0.5)


@BACKWARD.mistake("the inner derivative 1/√2 is forgotten", "erf is taken at x/√2: the chain rule multiplies by 1/√2.")
def without_inner_derivative(dy, x):
    return dy * (cdf(x) + x * pdf(x) * 2**0.5)


@BACKWARD.mistake("the √2 in erf is forgotten", "Φ(x) takes erf at x/√2.")
def without_root_backward(dy, x):
    return dy * (0.5 * (1 + erf(x)) + x * pdf(x))


@BACKWARD.misreading("dy and x are exchanged", "The arguments come in the order dy, x: first the gradient.")
def arguments_exchanged(dy, x):
    return x, dy


@BACKWARD.mistake("Φ is multiplied by x as well", "(x Φ)′ = Φ + x Φ′: the derivative of x is 1.")
def cdf_times_x(dy, x):
    return dy * x * cdf(x)


@BACKWARD.mistake("the root of 2π is forgotten", "The density is exp(−x²/2) over √(2π), not over 2π.")
def without_root_of_2_pi(dy, x):
    return dy * (cdf(x) + x * pdf(x) / (2 * np.pi) ** 0.5)


@BACKWARD.mistake("the density is multiplied by x twice", "(x Φ)′ = Φ + x Φ′: once.")
def density_times_x_squared(dy, x):
    return dy * (cdf(x) + x * x * pdf(x))


@BACKWARD.mistake("the minus in the exponent is forgotten", "The normal density falls as exp(−x²/2).")
def growing_density(dy, x):
    return dy * (cdf(x) + x * np.exp(0.5 * x * x) / (2 * np.pi) ** 0.5)


@BACKWARD.mistake("dy is added, not multiplied", "The chain rule multiplies.")
def added(dy, x):
    return dy + cdf(x) + x * pdf(x)


@BACKWARD.mistake("one half of the product rule is subtracted", "(x Φ)′ = Φ + x Φ′: the two halves are added.")
def subtracted(dy, x):
    return dy * (cdf(x) - x * pdf(x))
