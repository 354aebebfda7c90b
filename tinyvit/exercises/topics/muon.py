"""Muon's step made orthogonal, and an average of the parameters."""

import numpy as np

from tinyvit.exercises.exercise import exercise, normal, number_between


def average_inputs(random, D, t):
    average, theta = random.standard_normal((2, D))
    return average, theta, t, number_between(random, 0.5, 0.9)


@exercise(normal("RC", numbers=("iterations",)), "R C iterations=2,1,0,5")
def newton_schulz(G, iterations):
    """Make a matrix nearly orthogonal, as Muon does with its momentum (Jordan et al. 2024): divide G by its norm, the
    root of the sum of all squares, plus 10⁻⁷; then set X to a X + b (X Xᵀ) X + c (X Xᵀ)² X as often as is asked for,
    with a = 3.4445, b = −4.7750, c = 2.0315.

      G           (R, C)
      iterations  how often

    returns
      X  (R, C)
    """
    matrix = G / (np.sqrt((G * G).sum()) + 1e-7)
    for _ in range(iterations):
        A = matrix @ matrix.T
        matrix = 3.4445 * matrix - 4.7750 * A @ matrix + 2.0315 * A @ A @ matrix
    return matrix


@exercise(average_inputs, "D t=3,1000,0", "average theta")
def ema(average, theta, t, decay):
    """An exponential moving average of parameters: e ← d e + (1 − d) θ, where d is `decay`, or (1 + t) / (10 + t) if
    that is smaller, so that the first parameters are soon forgotten.

      average  (D,), e
      theta    (D,), θ
      t        how often it was updated before
      decay    a number below 1

    returns
      average  (D,), after the update
    """
    d = min(decay, (1 + t) / (10 + t))
    return d * average + (1 - d) * theta
