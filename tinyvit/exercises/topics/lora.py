"""A low-rank adapter beside a frozen linear layer."""

from tinyvit.exercises.exercise import exercise, number_between


def inputs(random, B, N, D, K, r):
    x = random.standard_normal((B, N, D))
    weight = random.standard_normal((K, D))
    down = random.standard_normal((r, D))
    up = random.standard_normal((K, r))
    return x, weight, down, up, number_between(random, 2, 9)


@exercise(inputs, "B N D K r")
def lora(x, weight, down, up, alpha):
    """A linear layer without bias whose frozen weight has a low-rank adapter beside it (Hu et al. 2022): y = x Wᵀ + α/r
    · (x Aᵀ) Bᵀ.

      x       (B, N, D)
      weight  (K, D), W, which is not trained
      down    (r, D), A
      up      (K, r), B
      alpha   α, a number

    returns
      y  (B, N, K)
    """
    scale = alpha / len(down)
    hidden = x @ down.T                                                        # (B, N, r)
    return x @ weight.T + scale * hidden @ up.T


@exercise(forward=lora)
def lora_backward(dy, x, weight, down, up, alpha):
    """The gradients of `lora` that training needs: of x and of the adapter. The frozen weight gets none.

      dy      (B, N, K), the gradient of y
      x       (B, N, D)
      weight  (K, D), W, which is not trained
      down    (r, D), A
      up      (K, r), B
      alpha   α, a number

    returns
      dx     (B, N, D)
      ddown  (r, D)
      dup    (K, r)
    """
    scale = alpha / len(down)
    dhidden = scale * dy @ up                                                  # (B, N, r)
    dx = dy @ weight + dhidden @ down
    rows = x.reshape(-1, x.shape[-1])
    ddown = dhidden.reshape(-1, len(down)).T @ rows
    dup = scale * dy.reshape(-1, len(up)).T @ (rows @ down.T)
    return dx, ddown, dup
