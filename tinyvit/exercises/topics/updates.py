"""Clipped gradients, and the decoupled decay of AdamW."""

import numpy as np

from tinyvit.exercises.domain import Case
from tinyvit.exercises.exercise import exercise, number_between
from tinyvit.exercises.topics import adam as of_adam
from tinyvit.exercises.topics.adam import adam


def clip_inputs(random, D, K, most):
    dweight = random.standard_normal((K, D))
    dbias = random.standard_normal(K)
    norm = np.hypot(np.linalg.norm(dweight), np.linalg.norm(dbias))
    return dweight, dbias, float(norm * most / 10)


def adamw_inputs(random, D, t):
    given = of_adam.inputs(random, D, t)
    return *given, number_between(random, 0.1, 0.5)


ZEROS = Case("gradients of zero", lambda random: (np.zeros((3, 4)), np.zeros(3), 0.5))


@exercise(clip_inputs, "D K most=3,12,10,1", "", extra=(ZEROS,))
def clip_gradients(dweight, dbias, max_norm):
    """Scale all gradients of a model by one factor, so that their norm, the root of the sum of all squares, is at most
    max_norm; smaller ones stay as they are (Pascanu et al. 2013). The model has a weight and a bias.

      dweight   (K, D)
      dbias     (K,)
      max_norm  a number above 0

    returns
      dweight  (K, D), scaled
      dbias    (K,), scaled
    """
    norm = np.sqrt((dweight * dweight).sum() + (dbias * dbias).sum())
    factor = max_norm / max(norm, max_norm)
    return dweight * factor, dbias * factor


@exercise(adamw_inputs, "D t=3,7,1", "g")
def adamw(theta, g, m, v, t, lr, beta1, beta2, eps, weight_decay):
    """One step of AdamW (Loshchilov & Hutter 2019): Adam's step, and beside it the old parameters shrink by the factor
    1 − lr · λ. The decay is decoupled: neither m nor v knows of it.

      theta         (D,), the parameters
      g             (D,), their gradient
      m             (D,), the running mean of gradients after step t − 1
      v             (D,), the running mean of their squares after step t − 1
      t             the number of this step, from 1 on
      lr            the learning rate
      beta1         of m, a number
      beta2         of v, a number
      eps           ε, a number
      weight_decay  λ

    returns
      theta  (D,), after the step
      m      (D,)
      v      (D,)
    """
    stepped, m, v = adam(theta, g, m, v, t, lr, beta1, beta2, eps)
    return stepped - lr * weight_decay * theta, m, v
