"""One step of Adam."""

import numpy as np

from tinyvit.exercises.exercise import Case, exercise, lesson, visible_eps


def inputs(random, D, t):
    theta, g, m = random.standard_normal((3, D))
    lr, beta1, beta2 = (round(float(random.uniform(*ends)), 3) for ends in ((0.05, 0.2), (0.7, 0.8), (0.85, 0.95)))
    return theta, g, m, random.uniform(0.5, 2, D), t, lr, beta1, beta2, visible_eps(random)


def first_step(random):
    theta, g, _, _, _, *rest = inputs(random, 5, 1)
    return theta, g, np.zeros(5), np.zeros(5), 1, *rest


@exercise(
    inputs, ({"D": 5, "t": 3}, {"D": 4, "t": 7}), traps=(Case("the first step, where m and v are 0", first_step),),
)
def adam(theta, g, m, v, t, lr, beta1, beta2, eps):
    """One step of Adam (Kingma & Ba 2015, algorithm 1).

      theta  (D,), the parameters
      g      (D,), their gradient
      m      (D,), the running mean of gradients after step t − 1
      v      (D,), the running mean of their squares after step t − 1
      t      the number of this step, from 1 on
      lr     the learning rate
      beta1  of m, a number
      beta2  of v, a number
      eps    ε, a number

    returns
      theta  (D,), after the step
      m      (D,)
      v      (D,)
    """
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g * g
    m_hat, v_hat = m / (1 - beta1**t), v / (1 - beta2**t)
    return theta - lr * m_hat / (v_hat**0.5 + eps), m, v


lesson(adam, """
Package: tinyvit.functional.adam.adam_step

Hints:
  m and v begin at zero. By which factor are they too small after one step?
  New m, new v, both divided by a correction; then θ − lr · m̂ / (√v̂ + ε).
  m ← β₁ m + (1 − β₁) g, v ← β₂ v + (1 − β₂) g², m̂ = m / (1 − β₁ᵗ), v̂ = v / (1 − β₂ᵗ), θ ← θ − lr m̂ / (√v̂ + ε).

Mistakes:
  the bias correction is forgotten
    m and v start at 0 and are too small in the first steps: they are divided by 1 − βᵗ before they are used.
    `m / (1 - beta1**t)` → `m`
    `v / (1 - beta2**t)` → `v`
  the bias correction of v is forgotten
    m is corrected; v started at 0 as well.
    `v / (1 - beta2**t)` → `v`
  the bias correction of m is forgotten
    v is corrected; m started at 0 as well.
    `m / (1 - beta1**t)` → `m`
  ε inside of the square root
    ε is added to the root: √v̂ + ε.
    `(v_hat**0.5 + eps)` → `(v_hat + eps) ** 0.5`
  ε is forgotten
    Where the gradient was always zero, 0 would be divided by 0.
    ` + eps` → ``
  ε is added before v is corrected
    It is added to √v̂, the root of the corrected v; otherwise it has more weight in the first steps.
    `m_hat / (v_hat**0.5` → `m_hat * (1 - beta2**t) ** 0.5 / (v**0.5`
  steps are counted from 0
    The first step is t = 1: with t − 1 the correction would divide by 0 there.
    `t = t - 1`
  steps are counted from 2
    t is the number of this step already; don't add 1.
    `t = t + 1`
  multiplied by t, not to the power of t
    The correction is 1 − βᵗ: after t steps the initial zero still has the weight βᵗ.
    `**t` → ` * t`
  multiplied by t, not to the power of t, for m
    The correction is 1 − β₁ᵗ: 1 - beta1 ** t, with two stars.
    `beta1**t` → `beta1 * t`
  the power is taken of 1 − β
    The correction is 1 − βᵗ, not (1 − β)ᵗ.
    `**t)` → `)**t`
  the power is taken of 1 − β₁
    The correction of m is 1 − β₁ᵗ, not (1 − β₁)ᵗ.
    `beta1**t)` → `beta1) ** t`
  v is corrected with β₁
    v is the running mean with β₂: its correction is 1 − β₂ᵗ.
    `beta2**t` → `beta1**t`
  the learning rate is forgotten
    The step is lr times m̂ / (√v̂ + ε).
    `lr = 1`
  the square root is forgotten
    The step is divided by √v̂: m̂ and √v̂ are of the same unit.
    `v_hat**0.5` → `v_hat`
  uphill
    The step goes against the gradient: θ − …
    `theta - lr` → `theta + lr`
  the gradient in place of its running mean
    The step follows m̂, not g.
    `lr * m_hat` → `lr * g`
  the old m and v are used
    Update them with this step's gradient before the step is taken.
    `    m = ` → `    new_m = `
    `    v = ` → `    new_v = `
    `, m, v⏎` → `, new_m, new_v⏎`
  the corrected m and v are remembered
    m̂ and v̂ are for this step only; the next one continues from m and v.
    `eps), m, v` → `eps), m_hat, v_hat`
  the gradient is not squared in v
    v is the running mean of g².
    `g * g` → `g`
  β₁ and β₂ exchanged
    β₁ belongs to m, β₂ to v.
    `beta1, beta2 = beta2, beta1`
  the factors 1 − β are forgotten
    A running mean gives weight β to the old value and 1 − β to the new one.
    `(1 - beta1) * ` → ``
    `(1 - beta2) * ` → ``
  β and 1 − β exchanged
    The old value gets β, near 1, and the new one 1 − β.
    `beta1 * m + (1 - beta1) * g` → `(1 - beta1) * m + beta1 * g`
    `beta2 * v + (1 - beta2) * g` → `(1 - beta2) * v + beta2 * g`
""")
