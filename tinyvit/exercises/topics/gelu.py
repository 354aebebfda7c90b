"""GELU and its gradient."""

import numpy as np

from tinyvit.exercises.domain import Case
from tinyvit.exercises.exercise import exercise


def inputs(random, **sizes):
    return (2 * random.standard_normal(tuple(sizes.values())),)


ONE = Case("a single axis", lambda random: inputs(random, N=5))
THREE = Case("three axes", lambda random: inputs(random, B=2, N=1, M=7))


@exercise(inputs, "B N", extra=(ONE, THREE))
def gelu(x):
    """The exact GELU, x Φ(x), where Φ(x) = (1 + erf(x/√2))/2 is the distribution function of the standard normal
    distribution. NumPy has no erf: `from scipy.special import erf` does, and takes arrays.

      x  an array of any shape

    returns
      y  as x
    """
    from scipy.special import erfc

    cdf = 0.5 * erfc(-x * 0.5**0.5)
    return x * cdf


@exercise(forward=gelu)
def gelu_backward(dy, x):
    """The gradient of the exact GELU, x Φ(x), where Φ(x) = (1 + erf(x/√2))/2. NumPy has no erf: `from scipy.special
    import erf` does.

      dy  the gradient of the GELU, as x
      x   an array of any shape

    returns
      dx  as x
    """
    from scipy.special import erfc

    cdf = 0.5 * erfc(-x * 0.5**0.5)
    pdf = np.exp(-0.5 * x * x) * (2 * np.pi) ** -0.5
    return dy * (cdf + x * pdf)
