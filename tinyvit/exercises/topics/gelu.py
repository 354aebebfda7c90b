"""GELU and its gradient."""

from tinyvit import functional as F
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

CDF, PDF = "0.5 * erfc(-x * 0.5**0.5)", "np.exp(-0.5 * x * x) * (2 * np.pi) ** -0.5"
TANH_CDF = CDF, "0.5 * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))"
TANH_PDF = PDF, "2 * cdf * (1 - cdf) * (2 / np.pi) ** 0.5 * (1 + 3 * 0.044715 * x * x)"
SIGMOID_CDF = CDF, "1 / (1 + np.exp(-1.702 * x))"
TANH = "It differs from the exact GELU by up to 4.7e-4; use the exact one, with erf."
SIGMOID = "x σ(1.702 x) differs from the exact GELU by up to 0.02; use the exact one, with erf."
DENSITY = "The normal density falls as exp(−x²/2)."

FORWARD.edit("the tanh approximation", TANH, TANH_CDF)
FORWARD.edit("the sigmoid approximation", SIGMOID, SIGMOID_CDF)
FORWARD.edit("a SiLU", "x σ(x) is the SiLU, or swish.", (CDF, "1 / (1 + np.exp(-x))"))
FORWARD.edit("a ReLU", "max(x, 0) is the ReLU; the GELU is smooth.", ("x * cdf", "np.maximum(x, 0)"))
FORWARD.edit("the √2 in erf is forgotten", "Φ(x) takes erf at x/√2.", ("-x * 0.5**0.5", "-x"))
FORWARD.edit("multiplied by √2 in erf", "Φ(x) takes erf at x divided by √2.", ("-x * 0.5**0.5", "-x * 2**0.5"))
FORWARD.edit("the ½ is forgotten", "Φ(x) is half of 1 + erf: a probability, between 0 and 1.", ("0.5 * erfc", "erfc"))
FORWARD.edit("the 1 of 1 + erf is forgotten", "Φ(x) is a probability, between 0 and 1; erf goes from −1 to 1.",
    (CDF, f"{CDF} - 0.5"))
FORWARD.edit("not multiplied by x", "Φ(x) is only the gate; GELU is x Φ(x).", ("x * cdf", "cdf"))

BACKWARD.edit("one half of the product rule", "x Φ(x) is a product of two functions of x; Φ(x) is the term from the "
    "derivative of x alone.", (" + x * pdf", ""))
BACKWARD.edit("the other half of the product rule", "x Φ′(x) is there; the term from the derivative of x, Φ(x), is "
    "missing.", ("cdf + x", "x"))
BACKWARD.edit("the density is not multiplied by x", "In the product rule, Φ's derivative is multiplied by x.",
    ("x * pdf", "pdf"))
BACKWARD.edit("the derivative of the tanh approximation", TANH, TANH_CDF, TANH_PDF)
BACKWARD.edit("the derivative of the sigmoid approximation", SIGMOID, SIGMOID_CDF, (PDF, "1.702 * cdf * (1 - cdf)"))
BACKWARD.edit("the ReLU's derivative", "The GELU is smooth: its derivative does not jump from 0 to 1.",
    ("(cdf + x * pdf)", "(x > 0)"))
BACKWARD.edit("1/√(2π) is forgotten", "Φ's derivative is the normal density, whose integral is 1.",
    (" * (2 * np.pi) ** -0.5", ""))
BACKWARD.edit("the ½ in the exponent is forgotten", DENSITY, ("-0.5 * x", "-x"))
BACKWARD.edit("the inner derivative 1/√2 is forgotten", "erf is taken at x/√2: the chain rule multiplies by 1/√2.",
    ("x * pdf", "x * pdf * 2**0.5"))
BACKWARD.edit("the √2 in erf is forgotten", "Φ(x) takes erf at x/√2.", ("-x * 0.5**0.5", "-x"))
BACKWARD.edit("dy and x are exchanged", "The arguments come in the order dy, x: first the gradient.", "dy, x = x, dy")
BACKWARD.edit("Φ is multiplied by x as well", "(x Φ)′ = Φ + x Φ′: the derivative of x is 1.",
    ("cdf + x * pdf", "x * cdf"))
BACKWARD.edit("the root of 2π is forgotten", "The density is exp(−x²/2) over √(2π), not over 2π.", ("** -0.5", "** -1"))
BACKWARD.edit("the density is multiplied by x twice", "(x Φ)′ = Φ + x Φ′: once.", ("x * pdf", "x * x * pdf"))
BACKWARD.edit("the minus in the exponent is forgotten", DENSITY, ("-0.5 * x", "0.5 * x"))
BACKWARD.edit("dy is added, not multiplied", "The chain rule multiplies.", ("dy * (", "dy + ("))
BACKWARD.edit("one half of the product rule is subtracted", "(x Φ)′ = Φ + x Φ′: the two halves are added.",
    ("cdf + x", "cdf - x"))
