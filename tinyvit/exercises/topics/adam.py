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


def moments(g, m, v, beta1, beta2):
    return beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g


def corrected(m, v, t, beta1, beta2):
    return m / (1 - beta1**t), v / (1 - beta2**t)


@ADAM.misreading(
    "the bias correction is forgotten",
    "m and v start at 0 and are too small in the first steps: they are divided by 1 − βᵗ before they are used.",
    outputs=("theta",),
)
def without_correction(theta, g, m, v, t, lr, beta1, beta2, eps):
    return theta, g, m, v, 100_000, lr, beta1, beta2, eps  # after many steps it is 1


@ADAM.mistake("the bias correction of v is forgotten", "m is corrected; v started at 0 as well.")
def only_m_corrected(theta, g, m, v, t, lr, beta1, beta2, eps):
    m, v = moments(g, m, v, beta1, beta2)
    return {"theta": theta - lr * m / (1 - beta1**t) / (np.sqrt(v) + eps)}


@ADAM.mistake("the bias correction of m is forgotten", "v is corrected; m started at 0 as well.")
def only_v_corrected(theta, g, m, v, t, lr, beta1, beta2, eps):
    m, v = moments(g, m, v, beta1, beta2)
    return {"theta": theta - lr * m / (np.sqrt(v / (1 - beta2**t)) + eps)}


@ADAM.mistake("ε inside of the square root", "ε is added to the root: √v̂ + ε.")
def eps_inside(theta, g, m, v, t, lr, beta1, beta2, eps):
    m_hat, v_hat = corrected(*moments(g, m, v, beta1, beta2), t, beta1, beta2)
    return {"theta": theta - lr * m_hat / np.sqrt(v_hat + eps)}


@ADAM.misreading("ε is forgotten", "Where the gradient was always zero, 0 would be divided by 0.", outputs=("theta",))
def without_eps(theta, g, m, v, t, lr, beta1, beta2, eps):
    return theta, g, m, v, t, lr, beta1, beta2, 0.0


@ADAM.mistake(
    "ε is added before v is corrected",
    "It is added to √v̂, the root of the corrected v; otherwise it has more weight in the first steps.",
)
def eps_before_correction(theta, g, m, v, t, lr, beta1, beta2, eps):
    m, v = moments(g, m, v, beta1, beta2)
    return {"theta": theta - lr * (1 - beta2**t) ** 0.5 / (1 - beta1**t) * m / (np.sqrt(v) + eps)}


@ADAM.misreading(
    "steps are counted from 0",
    "The first step is t = 1: with t − 1 the correction would divide by 0 there.",
    outputs=("theta",),
)
def counted_from_0(theta, g, m, v, t, lr, beta1, beta2, eps):
    return theta, g, m, v, t - 1, lr, beta1, beta2, eps


@ADAM.misreading("steps are counted from 2", "t is the number of this step already; don't add 1.", outputs=("theta",))
def counted_from_2(theta, g, m, v, t, lr, beta1, beta2, eps):
    return theta, g, m, v, t + 1, lr, beta1, beta2, eps


@ADAM.mistake(
    "multiplied by t, not to the power of t",
    "The correction is 1 − βᵗ: after t steps the initial zero still has the weight βᵗ.",
)
def times_t(theta, g, m, v, t, lr, beta1, beta2, eps):
    m, v = moments(g, m, v, beta1, beta2)
    return {"theta": theta - lr * m / (1 - beta1 * t) / (np.sqrt(v / (1 - beta2 * t)) + eps)}


@ADAM.mistake(
    "multiplied by t, not to the power of t, for m", "The correction is 1 − β₁ᵗ: 1 - beta1 ** t, with two stars."
)
def times_t_for_m(theta, g, m, v, t, lr, beta1, beta2, eps):
    m, v = moments(g, m, v, beta1, beta2)
    return {"theta": theta - lr * m / (1 - beta1 * t) / (np.sqrt(v / (1 - beta2**t)) + eps)}


@ADAM.mistake("the power is taken of 1 − β", "The correction is 1 − βᵗ, not (1 − β)ᵗ.")
def power_of_the_difference(theta, g, m, v, t, lr, beta1, beta2, eps):
    m, v = moments(g, m, v, beta1, beta2)
    return {"theta": theta - lr * m / (1 - beta1) ** t / (np.sqrt(v / (1 - beta2) ** t) + eps)}


@ADAM.mistake("the power is taken of 1 − β₁", "The correction of m is 1 − β₁ᵗ, not (1 − β₁)ᵗ.")
def power_of_the_difference_for_m(theta, g, m, v, t, lr, beta1, beta2, eps):
    m, v = moments(g, m, v, beta1, beta2)
    return {"theta": theta - lr * m / (1 - beta1) ** t / (np.sqrt(v / (1 - beta2**t)) + eps)}


@ADAM.mistake("v is corrected with β₁", "v is the running mean with β₂: its correction is 1 − β₂ᵗ.")
def v_corrected_with_beta1(theta, g, m, v, t, lr, beta1, beta2, eps):
    m, v = moments(g, m, v, beta1, beta2)
    return {"theta": theta - lr * m / (1 - beta1**t) / (np.sqrt(v / (1 - beta1**t)) + eps)}


@ADAM.misreading("the learning rate is forgotten", "The step is lr times m̂ / (√v̂ + ε).", outputs=("theta",))
def without_lr(theta, g, m, v, t, lr, beta1, beta2, eps):
    return theta, g, m, v, t, 1.0, beta1, beta2, eps


@ADAM.mistake("the square root is forgotten", "The step is divided by √v̂: m̂ and √v̂ are of the same unit.")
def without_root(theta, g, m, v, t, lr, beta1, beta2, eps):
    m_hat, v_hat = corrected(*moments(g, m, v, beta1, beta2), t, beta1, beta2)
    return {"theta": theta - lr * m_hat / (v_hat + eps)}


@ADAM.misreading("uphill", "The step goes against the gradient: θ − …", outputs=("theta",))
def uphill(theta, g, m, v, t, lr, beta1, beta2, eps):
    return theta, g, m, v, t, -lr, beta1, beta2, eps


@ADAM.mistake("the gradient in place of its running mean", "The step follows m̂, not g.")
def gradient_for_mean(theta, g, m, v, t, lr, beta1, beta2, eps):
    _, v_hat = corrected(*moments(g, m, v, beta1, beta2), t, beta1, beta2)
    return {"theta": theta - lr * g / (np.sqrt(v_hat) + eps)}


@ADAM.mistake("the old m and v are used", "Update them with this step's gradient before the step is taken.")
def old_moments(theta, g, m, v, t, lr, beta1, beta2, eps):
    m_hat, v_hat = corrected(m, v, t, beta1, beta2)
    return {"theta": theta - lr * m_hat / (np.sqrt(v_hat) + eps)}


@ADAM.mistake(
    "the corrected m and v are remembered", "m̂ and v̂ are for this step only; the next one continues from m and v."
)
def corrected_are_kept(theta, g, m, v, t, lr, beta1, beta2, eps):
    m_hat, v_hat = corrected(*moments(g, m, v, beta1, beta2), t, beta1, beta2)
    return {"m": m_hat, "v": v_hat}


def stepped(theta, m, v, t, lr, beta1, beta2, eps):
    """All that is returned, with m and v as they came out wrong."""
    m_hat, v_hat = corrected(m, v, t, beta1, beta2)
    return theta - lr * m_hat / (np.sqrt(v_hat) + eps), m, v


@ADAM.mistake("the gradient is not squared in v", "v is the running mean of g².")
def not_squared(theta, g, m, v, t, lr, beta1, beta2, eps):
    m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g
    return stepped(theta, m, v, t, lr, beta1, beta2, eps)


@ADAM.misreading("β₁ and β₂ exchanged", "β₁ belongs to m, β₂ to v.")
def exchanged(theta, g, m, v, t, lr, beta1, beta2, eps):
    return theta, g, m, v, t, lr, beta2, beta1, eps


@ADAM.mistake(
    "the factors 1 − β are forgotten", "A running mean gives weight β to the old value and 1 − β to the new one."
)
def without_factors(theta, g, m, v, t, lr, beta1, beta2, eps):
    m, v = beta1 * m + g, beta2 * v + g * g
    return stepped(theta, m, v, t, lr, beta1, beta2, eps)


@ADAM.mistake("β and 1 − β exchanged", "The old value gets β, near 1, and the new one 1 − β.")
def weights_exchanged(theta, g, m, v, t, lr, beta1, beta2, eps):
    return stepped(theta, *moments(g, m, v, 1 - beta1, 1 - beta2), t, lr, beta1, beta2, eps)
