"""One step of Adam."""

import numpy as np

from tinyvit.exercises.exercise import Case, Exercise, visible_eps
from tinyvit.functional.adam import adam_step


def inputs(random, D, t):
    theta, g, m = random.standard_normal((3, D))
    lr, beta1, beta2 = (round(float(random.uniform(*ends)), 3) for ends in ((0.05, 0.2), (0.7, 0.8), (0.85, 0.95)))
    return theta, g, m, random.uniform(0.5, 2, D), t, lr, beta1, beta2, visible_eps(random)


def first_step(random):
    theta, g, _, _, _, *rest = inputs(random, 5, 1)
    return theta, g, np.zeros(5), np.zeros(5), 1, *rest


def adam(theta, g, m, v, t, lr, beta1, beta2, eps):
    theta, m, v = theta.copy(), m.copy(), v.copy()  # the package's works in place
    adam_step(theta, g, m, v, t, lr, (beta1, beta2), eps, 0.0)
    return theta, m, v


ADAM = Exercise(
    "adam",
    "One step of Adam (Kingma & Ba 2015, algorithm 1). Return new arrays, and don't change the given ones.",
    {
        "theta": "(D,), the parameters",
        "g": "(D,), their gradient",
        "m": "(D,), the running mean of gradients after step t − 1",
        "v": "(D,), the running mean of their squares after step t − 1",
        "t": "the number of this step, from 1 on",
        "lr": "the learning rate",
        "beta1": "of m, a number",
        "beta2": "of v, a number",
        "eps": "ε, a number",
    },
    {"theta": "(D,), after the step", "m": "(D,)", "v": "(D,)"},
    right=adam,
    shown=(adam_step,),
    inputs=inputs,
    sizes=({"D": 5, "t": 3}, {"D": 4, "t": 7}),
    traps=(Case("the first step, where m and v are 0", first_step),),
)
EXERCISES = (ADAM,)

M_HAT, V_HAT, ROOT = "m / (1 - beta1**t)", "v / (1 - beta2**t)", "(v_hat**0.5 + eps)"

ADAM.edit("the bias correction is forgotten", "m and v start at 0 and are too small in the first steps: they are "
    "divided by 1 − βᵗ before they are used.", (M_HAT, "m"), (V_HAT, "v"))
ADAM.edit("the bias correction of v is forgotten", "m is corrected; v started at 0 as well.", (V_HAT, "v"))
ADAM.edit("the bias correction of m is forgotten", "v is corrected; m started at 0 as well.", (M_HAT, "m"))
ADAM.edit("ε inside of the square root", "ε is added to the root: √v̂ + ε.", (ROOT, "(v_hat + eps) ** 0.5"))
ADAM.edit("ε is forgotten", "Where the gradient was always zero, 0 would be divided by 0.", (" + eps", ""))
ADAM.edit("ε is added before v is corrected", "It is added to √v̂, the root of the corrected v; otherwise it has more "
    "weight in the first steps.", ("m_hat / (v_hat**0.5", "m_hat * (1 - beta2**t) ** 0.5 / (v**0.5"))
ADAM.edit("steps are counted from 0", "The first step is t = 1: with t − 1 the correction would divide by 0 there.",
    "t = t - 1")
ADAM.edit("steps are counted from 2", "t is the number of this step already; don't add 1.", "t = t + 1")
ADAM.edit("multiplied by t, not to the power of t", "The correction is 1 − βᵗ: after t steps the initial zero still "
    "has the weight βᵗ.", ("**t", " * t"))
ADAM.edit("multiplied by t, not to the power of t, for m", "The correction is 1 − β₁ᵗ: 1 - beta1 ** t, with two stars.",
    ("beta1**t", "beta1 * t"))
ADAM.edit("the power is taken of 1 − β", "The correction is 1 − βᵗ, not (1 − β)ᵗ.", ("**t)", ")**t"))
ADAM.edit("the power is taken of 1 − β₁", "The correction of m is 1 − β₁ᵗ, not (1 − β₁)ᵗ.",
    ("beta1**t)", "beta1) ** t"))
ADAM.edit("v is corrected with β₁", "v is the running mean with β₂: its correction is 1 − β₂ᵗ.",
    ("beta2**t", "beta1**t"))
ADAM.edit("the learning rate is forgotten", "The step is lr times m̂ / (√v̂ + ε).", "lr = 1")
ADAM.edit("the square root is forgotten", "The step is divided by √v̂: m̂ and √v̂ are of the same unit.",
    ("v_hat**0.5", "v_hat"))
ADAM.edit("uphill", "The step goes against the gradient: θ − …", ("theta - lr", "theta + lr"))
ADAM.edit("the gradient in place of its running mean", "The step follows m̂, not g.", ("lr * m_hat", "lr * g"))
ADAM.edit("the old m and v are used", "Update them with this step's gradient before the step is taken.",
    ("    m = ", "    new_m = "), ("    v = ", "    new_v = "), (", m, v\n", ", new_m, new_v\n"))
ADAM.edit("the corrected m and v are remembered", "m̂ and v̂ are for this step only; the next one continues from m and "
    "v.", ("eps), m, v", "eps), m_hat, v_hat"))
ADAM.edit("the gradient is not squared in v", "v is the running mean of g².", ("g * g", "g"))
ADAM.edit("β₁ and β₂ exchanged", "β₁ belongs to m, β₂ to v.", "beta1, beta2 = beta2, beta1")
ADAM.edit("the factors 1 − β are forgotten", "A running mean gives weight β to the old value and 1 − β to the new one.",
    ("(1 - beta1) * ", ""), ("(1 - beta2) * ", ""))
ADAM.edit("β and 1 − β exchanged", "The old value gets β, near 1, and the new one 1 − β.",
    ("beta1 * m + (1 - beta1) * g", "(1 - beta1) * m + beta1 * g"),
    ("beta2 * v + (1 - beta2) * g", "(1 - beta2) * v + beta2 * g"))
