"""The end of a residual branch: a factor for each feature, and samples that skip the branch."""

from tinyvit.exercises.exercise import exercise, normal


def path_inputs(random, B, N, D, rate):
    kept = (random.permutation(B) % 2).astype("float64")
    x, branch = random.standard_normal((2, B, N, D))
    return x, branch, kept, rate / 10


@exercise(path_inputs, "B N D rate=3,6,0", "x branch")
def drop_path(x, branch, kept, rate):
    """Stochastic depth (Huang et al. 2016): x + branch, where samples that are not kept skip the branch, and the branch
    of the others is divided by 1 − rate, so that the expected sum stays the same.

      x       (B, N, D)
      branch  (B, N, D)
      kept    (B,), 1 for a sample that keeps the branch, else 0
      rate    the probability of dropping a sample's branch

    returns
      y  (B, N, D)
    """
    factor = kept / (1 - rate)
    return x + branch * factor[:, None, None]


@exercise(forward=drop_path)
def drop_path_backward(dy, kept, rate):
    """The gradients of `drop_path`.

      dy    (B, N, D), the gradient of y
      kept  (B,), 1 for a sample that keeps the branch, else 0
      rate  the probability of dropping a sample's branch

    returns
      dx       (B, N, D)
      dbranch  (B, N, D)
    """
    factor = kept / (1 - rate)
    return dy, dy * factor[:, None, None]


@exercise(normal("BND", "BND", "D"), "B N D")
def layer_scale_backward(dy, branch, weight):
    """The gradients of y = x + branch · weight, with a factor for each feature (Touvron et al. 2021, eq. 4).

      dy      (B, N, D), the gradient of y
      branch  (B, N, D)
      weight  (D,)

    returns
      dx       (B, N, D)
      dbranch  (B, N, D)
      dweight  (D,)
    """
    return dy, dy * weight, (dy * branch).sum((0, 1))
