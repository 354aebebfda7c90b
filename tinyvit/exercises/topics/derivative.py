"""The derivative of a function by the complex step."""

import numpy as np

from tinyvit.exercises.exercise import Case, Exercise

EXACT = 4e-15  # relative: a few roundings of float64, and no more
STEP = 1e-20
DIFFERENCES = tuple(float(f"1e-{power}") for power in range(1, 14))  # steps that learners choose
COMPLEX = tuple(float(f"1e-{power}") for power in (8, 10, 12, 15, 16, 20, 30, 40, 50, 60, 100, 200, 300))


def cube(x):
    return x * x * x


def quotient(x):
    return (x - 1) / (x * x + 2)


def derivative(f, x):
    return f(x + 1j * STEP).imag / STEP


def of(f):
    return lambda random: (f, float(random.uniform(0.5, 2)))


DERIVATIVE = Exercise(
    "derivative",
    "The derivative of a function at x, right to the last digits, by the complex step Im f(x + ih) / h.",
    {"f": "an analytic function of one number, which takes complex ones, too", "x": "a real number"},
    {"dfdx": "a number, f′(x)"},
    right=derivative,
    shown=(derivative,),
    inputs=of(np.exp),
    sizes=({},),
    traps=(Case("f = sin", of(np.sin), tolerance=EXACT), Case("f = x³", of(cube), tolerance=EXACT),
           Case("f = (x − 1) / (x² + 2)", of(quotient), tolerance=EXACT)),
    tolerance=EXACT,
)  # fmt: skip
EXERCISES = (DERIVATIVE,)

DIFFERENCE = (
    "It subtracts two values that are nearly equal, which leaves only their last digits. Step into the imaginary "
    "direction, where nothing is subtracted."
)


def forward_difference(f, x, h):
    return (f(x + h) - f(x)) / h


def backward_difference(f, x, h):
    return (f(x) - f(x - h)) / h


def central_difference(f, x, h):
    return (f(x + h) - f(x - h)) / (2 * h)


def complex_step(f, x, h):
    return f(x + 1j * h).imag / h


def real_part(f, x, h):
    return f(x + 1j * h).real / h


def with_step(formula, h):
    """The formula with this h."""
    return lambda f, x: formula(f, x, h)


for h in DIFFERENCES:
    DERIVATIVE.mistake("a finite difference", DIFFERENCE)(with_step(forward_difference, h))
    DERIVATIVE.mistake("a finite difference", DIFFERENCE)(with_step(backward_difference, h))
    DERIVATIVE.mistake("a finite difference", DIFFERENCE)(with_step(central_difference, h))
for h in DIFFERENCES[:6]:
    DERIVATIVE.mistake(
        "the step is too large", "The error of a complex step is h² |f‴| / 6, and h may be as small as you like: 1e-20."
    )(with_step(complex_step, h))
for h in COMPLEX:
    DERIVATIVE.mistake("the real part", "f′ is in the imaginary part: f(x + ih) = f + ih f′ − …")(
        with_step(real_part, h)
    )


@DERIVATIVE.mistake(
    "the function in place of its derivative", "Evaluate f at x + ih and take the imaginary part over h."
)
def itself(f, x):
    return f(x)


@DERIVATIVE.mistake("twice the derivative", "x + ih and x − ih are 2h apart; divide by 2h, or use one of them only.")
def twice(f, x):
    return 2 * derivative(f, x)
