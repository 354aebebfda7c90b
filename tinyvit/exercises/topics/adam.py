"""One step of Adam."""

from tinyvit.exercises.exercise import exercise, visible_eps


def inputs(random, D, t):
    theta, g, m = random.standard_normal((3, D))
    lr, beta1, beta2 = (round(float(random.uniform(*ends)), 3) for ends in ((0.05, 0.2), (0.7, 0.8), (0.85, 0.95)))
    return theta, g, m, random.uniform(0.5, 2, D), t, lr, beta1, beta2, visible_eps(random)


@exercise(inputs, "D t=3,7,1", "g")
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
