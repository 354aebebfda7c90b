"""GELU and its gradient."""

import numpy as np

from tinyvit.exercises.exercise import exercise, lesson


def inputs(random, **sizes):
    return (2 * random.standard_normal(tuple(sizes.values())),)


@exercise(inputs, ({"B": 3, "N": 4}, {"B": 2, "N": 1, "M": 7}))
def gelu(x):
    """The exact GELU, x Φ(x), where Φ is the distribution function of the standard normal distribution.

      x  an array of any shape

    returns
      y  as x
    """
    from scipy.special import erfc

    cdf = 0.5 * erfc(-x * 0.5**0.5)
    return x * cdf


lesson(gelu, """
Package: tinyvit.functional.gelu.gelu

Hints:
  Φ(x) is the probability that a normal number is below x. What does x Φ(x) do far from 0, on both sides?
  x times a function that rises from 0 to 1; SciPy has erf and erfc.
  x Φ(x), Φ(x) = ½ (1 + erf(x/√2)) = ½ erfc(−x/√2); the second keeps its digits for very negative x.

Mistakes:
  the tanh approximation
    It differs from the exact GELU by up to 4.7e-4; use the exact one, with erf.
    `0.5 * erfc(-x * 0.5**0.5)` → `0.5 * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))`
  the sigmoid approximation
    x σ(1.702 x) differs from the exact GELU by up to 0.02; use the exact one, with erf.
    `0.5 * erfc(-x * 0.5**0.5)` → `1 / (1 + np.exp(-1.702 * x))`
  a SiLU
    x σ(x) is the SiLU, or swish.
    `0.5 * erfc(-x * 0.5**0.5)` → `1 / (1 + np.exp(-x))`
  a ReLU
    max(x, 0) is the ReLU; the GELU is smooth.
    `x * cdf` → `np.maximum(x, 0)`
  the √2 in erf is forgotten
    Φ(x) takes erf at x/√2.
    `-x * 0.5**0.5` → `-x`
  multiplied by √2 in erf
    Φ(x) takes erf at x divided by √2.
    `-x * 0.5**0.5` → `-x * 2**0.5`
  the ½ is forgotten
    Φ(x) is half of 1 + erf: a probability, between 0 and 1.
    `0.5 * erfc` → `erfc`
  the 1 of 1 + erf is forgotten
    Φ(x) is a probability, between 0 and 1; erf goes from −1 to 1.
    `0.5 * erfc(-x * 0.5**0.5)` → `0.5 * erfc(-x * 0.5**0.5) - 0.5`
  not multiplied by x
    Φ(x) is only the gate; GELU is x Φ(x).
    `x * cdf` → `cdf`
""")


@exercise(forward=gelu)
def gelu_backward(dy, x):
    """The gradient of the exact GELU, x Φ(x).

      dy  the gradient of the GELU, as x
      x   an array of any shape

    returns
      dx  as x
    """
    from scipy.special import erfc

    cdf = 0.5 * erfc(-x * 0.5**0.5)
    pdf = np.exp(-0.5 * x * x) * (2 * np.pi) ** -0.5
    return dy * (cdf + x * pdf)


lesson(gelu_backward, """
Package: tinyvit.functional.gelu.gelu_backward

Hints:
  x Φ(x) is a product. What is its derivative, if Φ's is the density of the normal distribution?
  dx = dy · (Φ(x) + x · density).
  dx = dy (Φ(x) + x φ(x)), φ(x) = e^(−x²/2) / √(2π).

Mistakes:
  one half of the product rule
    x Φ(x) is a product of two functions of x; Φ(x) is the term from the derivative of x alone.
    ` + x * pdf` → ``
  the other half of the product rule
    x Φ′(x) is there; the term from the derivative of x, Φ(x), is missing.
    `cdf + x` → `x`
  the density is not multiplied by x
    In the product rule, Φ's derivative is multiplied by x.
    `x * pdf` → `pdf`
  the derivative of the tanh approximation
    It differs from the exact GELU by up to 4.7e-4; use the exact one, with erf.
    `0.5 * erfc(-x * 0.5**0.5)` → `0.5 * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))`
    `np.exp(-0.5 * x * x) * (2 * np.pi) ** -0.5` →
      `2 * cdf * (1 - cdf) * (2 / np.pi) ** 0.5 * (1 + 3 * 0.044715 * x * x)`
  the derivative of the sigmoid approximation
    x σ(1.702 x) differs from the exact GELU by up to 0.02; use the exact one, with erf.
    `0.5 * erfc(-x * 0.5**0.5)` → `1 / (1 + np.exp(-1.702 * x))`
    `np.exp(-0.5 * x * x) * (2 * np.pi) ** -0.5` → `1.702 * cdf * (1 - cdf)`
  the ReLU's derivative
    The GELU is smooth: its derivative does not jump from 0 to 1.
    `(cdf + x * pdf)` → `(x > 0)`
  1/√(2π) is forgotten
    Φ's derivative is the normal density, whose integral is 1.
    ` * (2 * np.pi) ** -0.5` → ``
  the ½ in the exponent is forgotten
    The normal density falls as exp(−x²/2).
    `-0.5 * x` → `-x`
  the inner derivative 1/√2 is forgotten
    erf is taken at x/√2: the chain rule multiplies by 1/√2.
    `x * pdf` → `x * pdf * 2**0.5`
  the √2 in erf is forgotten
    Φ(x) takes erf at x/√2.
    `-x * 0.5**0.5` → `-x`
  dy and x are exchanged
    The arguments come in the order dy, x: first the gradient.
    `dy, x = x, dy`
  Φ is multiplied by x as well
    (x Φ)′ = Φ + x Φ′: the derivative of x is 1.
    `cdf + x * pdf` → `x * cdf`
  the root of 2π is forgotten
    The density is exp(−x²/2) over √(2π), not over 2π.
    `** -0.5` → `** -1`
  the density is multiplied by x twice
    (x Φ)′ = Φ + x Φ′: once.
    `x * pdf` → `x * x * pdf`
  the minus in the exponent is forgotten
    The normal density falls as exp(−x²/2).
    `-0.5 * x` → `0.5 * x`
  dy is added, not multiplied
    The chain rule multiplies.
    `dy * (` → `dy + (`
  one half of the product rule is subtracted
    (x Φ)′ = Φ + x Φ′: the two halves are added.
    `cdf + x` → `cdf - x`
""")
