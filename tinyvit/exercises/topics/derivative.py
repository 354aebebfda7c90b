"""The derivative of a function by the complex step."""

import numpy as np

from tinyvit.exercises import solutions
from tinyvit.exercises.exercise import Case, Exercise

EXACT = 4e-15  # relative: a few roundings of float64, and no more
DIFFERENCES = tuple(float(f"1e-{power}") for power in range(1, 14))  # steps that learners choose
COMPLEX = tuple(float(f"1e-{power}") for power in (8, 10, 12, 15, 16, 20, 30, 40, 50, 60, 100, 200, 300))


def cube(x):
    return x * x * x


def quotient(x):
    return (x - 1) / (x * x + 2)


def of(f):
    return lambda random: (f, float(random.uniform(0.5, 2)))


DERIVATIVE = Exercise(
    "derivative",
    "The derivative of a function at x, right to the last digits, by the complex step Im f(x + ih) / h.",
    {"f": "an analytic function of one number, which takes complex ones, too", "x": "a real number"},
    {"dfdx": "a number, f′(x)"},
    right=solutions.derivative,
    shown=(solutions.derivative,),
    inputs=of(np.exp),
    sizes=({},),
    traps=(Case("f = sin", of(np.sin), tolerance=EXACT), Case("f = x³", of(cube), tolerance=EXACT),
           Case("f = (x − 1) / (x² + 2)", of(quotient), tolerance=EXACT)),
    tolerance=EXACT,
)  # fmt: skip
EXERCISES = (DERIVATIVE,)

DIFFERENCE = (
    "a finite difference",
    "It subtracts two values that are nearly equal, which leaves only their last digits. Step into the imaginary "
    "direction, where nothing is subtracted.",
)

QUOTIENT = "f(x + 1e-20j).imag / 1e-20"
LARGE_STEP = (
    "the step is too large",
    "The error of a complex step is h² |f‴| / 6, and h may be as small as you like: 1e-20.",
)
REAL_PART = "the real part", "f′ is in the imaginary part: f(x + ih) = f + ih f′ − …"

for h in DIFFERENCES:
    DERIVATIVE.edit(*DIFFERENCE, (QUOTIENT, f"(f(x + {h}) - f(x)) / {h}"))
    DERIVATIVE.edit(*DIFFERENCE, (QUOTIENT, f"(f(x) - f(x - {h})) / {h}"))
    DERIVATIVE.edit(*DIFFERENCE, (QUOTIENT, f"(f(x + {h}) - f(x - {h})) / {2 * h}"))
for h in DIFFERENCES[:6]:
    DERIVATIVE.edit(*LARGE_STEP, ("1e-20", str(h)))
for h in COMPLEX:
    DERIVATIVE.edit(*REAL_PART, (".imag", ".real"), ("1e-20", str(h)))
DERIVATIVE.edit("the function in place of its derivative", "Evaluate f at x + ih and take the imaginary part over h.",
    (QUOTIENT, "f(x)"))
DERIVATIVE.edit("twice the derivative", "x + ih and x − ih are 2h apart; divide by 2h, or use one of them only.",
    (QUOTIENT, f"2 * {QUOTIENT}"))
