"""First backwards, for a reader who has written none yet: what is broadcast sums, and what is used twice adds up."""

from tinyvit.exercises.exercise import exercise, normal


@exercise(normal("BND", "BND", "D"), "B N D")
def scale_and_shift_backward(dy, x, weight):
    """The gradients of y = x * weight + bias, where weight and bias, each (D,), are broadcast to every row of x.

      dy      (B, N, D), the gradient of y
      x       (B, N, D)
      weight  (D,)

    returns
      dx       (B, N, D)
      dweight  (D,)
      dbias    (D,)
    """
    return dy * weight, (dy * x).sum((0, 1)), dy.sum((0, 1))


@exercise(normal("ND"), "N D")
def centre_backward(dy):
    """The gradient of y = x - x.mean(-1, keepdims=True), which takes from each row its own mean.

      dy  (N, D), the gradient of y

    returns
      dx  (N, D)
    """
    return dy - dy.mean(-1, keepdims=True)
