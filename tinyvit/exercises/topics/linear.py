"""The linear layer and its gradients."""

from tinyvit.exercises.exercise import exercise, normal


@exercise(normal("BND", "KD", "K"), "B N D K")
def linear(x, weight, bias):
    """Map every row of x by y = x Wᵀ + b.

      x       (B, N, D)
      weight  W, (K, D)
      bias    b, (K,)

    returns
      y  (B, N, K)
    """
    return x @ weight.T + bias


@exercise(forward=linear)
def linear_backward(dy, x, weight):
    """The gradients of y = x Wᵀ + b.

      dy      (B, N, K), the gradient of y
      x       (B, N, D)
      weight  W, (K, D)

    returns
      dx       (B, N, D)
      dweight  (K, D)
      dbias    (K,)
    """
    dy_rows, x_rows = dy.reshape(-1, dy.shape[-1]), x.reshape(-1, x.shape[-1])
    return dy @ weight, dy_rows.T @ x_rows, dy_rows.sum(0)
