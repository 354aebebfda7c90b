"""The derivative of a function by the complex step."""

import numpy as np

from tinyvit.exercises.domain import Case
from tinyvit.exercises.exercise import exercise

EXACT = 4e-15  # relative: a few roundings of float64, and no more


def cube(x):
    return x * x * x


def quotient(x):
    return (x - 1) / (x * x + 2)


def of(f):
    return lambda random: (f, float(random.uniform(0.5, 2)))


@exercise(
    of(np.exp), "",
    extra=(
        Case("f = sin", of(np.sin), tolerance=EXACT),
        Case("f = x³", of(cube), tolerance=EXACT),
        Case("f = (x − 1) / (x² + 2)", of(quotient), tolerance=EXACT),
    ),
    tolerance=EXACT,
)
def derivative(f, x):
    """The derivative of a function at x, right to the last digits, by the complex step Im f(x + ih) / h.

      f  an analytic function of one number, which takes complex ones, too
      x  a real number

    returns
      dfdx  a number, f′(x)
    """
    return f(x + 1e-20j).imag / 1e-20
