"""The derivative of a function by the complex step."""

import numpy as np

from tinyvit.exercises.exercise import Case, add_mistake, exercise, lesson

EXACT = 4e-15  # relative: a few roundings of float64, and no more
DIFFERENCES = tuple(float(f"1e-{power}") for power in range(1, 14))  # steps that learners choose
COMPLEX = tuple(float(f"1e-{power}") for power in (8, 10, 12, 15, 16, 20, 30, 40, 50, 60, 100, 200, 300))


def cube(x):
    return x * x * x


def quotient(x):
    return (x - 1) / (x * x + 2)


def of(f):
    return lambda random: (f, float(random.uniform(0.5, 2)))


@exercise(
    of(np.exp), ({},),
    traps=(
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


lesson(derivative, """
Hints:
  In (f(x + h) − f(x)) / h two nearly equal numbers are subtracted. Where does f(x + ih) put the difference?
  The imaginary part of one call, divided by h.
  f′(x) ≈ Im f(x + ih) / h, with an h as small as 10⁻²⁰: nothing is subtracted.

Mistakes:
  the function in place of its derivative
    Evaluate f at x + ih and take the imaginary part over h.
    `f(x + 1e-20j).imag / 1e-20` → `f(x)`
  twice the derivative
    x + ih and x − ih are 2h apart; divide by 2h, or use one of them only.
    `f(x + 1e-20j).imag / 1e-20` → `2 * f(x + 1e-20j).imag / 1e-20`
""")

DIFFERENCE = (
    "a finite difference",
    "It subtracts two values that are nearly equal, which leaves only their last digits. Step into the imaginary "
    "direction, where nothing is subtracted.",
)
LARGE_STEP = (
    "the step is too large",
    "The error of a complex step is h² |f‴| / 6, and h may be as small as you like: 1e-20.",
)
REAL_PART = "the real part", "f′ is in the imaginary part: f(x + ih) = f + ih f′ − …"


def instead(old, new):
    return "derivative", old, new


for h in DIFFERENCES:
    for difference in (
            f"(f(x + {h}) - f(x)) / {h}",
            f"(f(x) - f(x - {h})) / {h}",
            f"(f(x + {h}) - f(x - {h})) / {2 * h}",
    ):
        add_mistake(derivative, *DIFFERENCE, instead("f(x + 1e-20j).imag / 1e-20", difference))
for h in DIFFERENCES[:6]:
    add_mistake(derivative, *LARGE_STEP, instead("1e-20", str(h)))
for h in COMPLEX:
    add_mistake(derivative, *REAL_PART, instead(".imag", ".real"), instead("1e-20", str(h)))
