"""First backwards, for a reader who has written none yet: what is broadcast sums, and what is used twice adds up."""

from tinyvit.exercises.exercise import exercise, lesson


def scaled_inputs(random, B, N, D):
    return random.standard_normal((B, N, D)), random.standard_normal((B, N, D)), random.standard_normal(D)


def centred_inputs(random, N, D):
    return (random.standard_normal((N, D)),)


@exercise(scaled_inputs, ({"B": 2, "N": 3, "D": 4}, {"B": 3, "N": 5, "D": 1}), equal={"B": 3, "N": 3, "D": 3})
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


lesson(scale_and_shift_backward, """
Package: tinyvit.functional.layernorm.layernorm_backward

Hints:
  How many rows used weight, and how many used bias? What does a thing get that is used many times?
  Upstream times local for each entry; then a sum over the axes along which the array was repeated.
  dx is dy times weight. dweight is the sum of dy * x, and dbias the sum of dy, over the axes 0 and 1.

Mistakes:
  dx is not multiplied by weight
    The local gradient of x * weight with respect to x is weight.
    `dy * weight` → `dy`
  dx is multiplied by x
    The local gradient of x * weight with respect to x is weight, the other one.
    `dy * weight` → `dy * x`
  dx is divided by weight
    Backwards is not the inverse: the upstream gradient is multiplied.
    `dy * weight` → `dy / weight`
  the broadcast weight is not summed
    Every row of every sample used it, so its gradient is a sum over all of them: over axes 0 and 1.
    `(dy * x).sum((0, 1))` → `dy * x`
  the broadcast weight is summed over samples only
    Every row of every sample used it, so its gradient is a sum over all of them: over axes 0 and 1.
    `(dy * x).sum((0, 1))` → `(dy * x).sum(0)`
  the broadcast weight is summed over rows only
    Every row of every sample used it, so its gradient is a sum over all of them: over axes 0 and 1.
    `(dy * x).sum((0, 1))` → `(dy * x).sum(1)`
  dweight is not multiplied by x
    The local gradient of x * weight with respect to weight is x.
    `(dy * x)` → `dy`
  dweight is multiplied by weight
    The local gradient of x * weight with respect to weight is x.
    `(dy * x)` → `(dy * weight)`
  the sums are multiplied, not the products summed
    Multiply dy and x entry by entry, then sum.
    `(dy * x).sum((0, 1))` → `dy.sum((0, 1)) * x.sum((0, 1))`
  a mean in place of the sum
    The forward has no 1/N: what was used by many rows gets the sum.
    `x).sum` → `x).mean`
  the broadcast bias is not summed
    Every row of every sample used it, so its gradient is a sum over all of them: over axes 0 and 1.
    `dy.sum((0, 1))` → `dy`
  the broadcast bias is summed over samples only
    Every row of every sample used it, so its gradient is a sum over all of them: over axes 0 and 1.
    `dy.sum((0, 1))` → `dy.sum(0)`
  the broadcast bias is summed over rows only
    Every row of every sample used it, so its gradient is a sum over all of them: over axes 0 and 1.
    `dy.sum((0, 1))` → `dy.sum(1)`
  a mean in place of the sum
    The forward has no 1/N: what was used by many rows gets the sum.
    `dy.sum` → `dy.mean`
  the bias's gradient is 1
    1 is its local gradient; multiply it by dy, and sum.
    `dy.sum((0, 1))` → `np.ones_like(weight)`
""")


@exercise(centred_inputs, ({"N": 3, "D": 4}, {"N": 2, "D": 7}), equal={"N": 4, "D": 4})
def centre_backward(dy):
    """The gradient of y = x - x.mean(-1, keepdims=True), which takes from each row its own mean.

      dy  (N, D), the gradient of y

    returns
      dx  (N, D)
    """
    return dy - dy.mean(-1, keepdims=True)


lesson(centre_backward, """
Package: tinyvit.functional.layernorm.layernorm_backward

Hints:
  In which two ways does an entry of x go into y?
  The direct way gives dy. The mean is subtracted from each entry of its row: its gradient is minus a sum.
  An entry moves its row's mean by 1/D: dx is dy minus the mean of dy over the row, axis=-1 with keepdims.

Mistakes:
  the mean's path is missing
    x goes into y twice: directly, and through the mean of its row.
    ` - dy.mean(-1, keepdims=True)` → ``
  a sum in place of the mean
    An entry moves the mean of its row by 1/D: the local gradient is 1/D.
    `mean` → `sum`
  the mean's path has the wrong sign
    The mean is subtracted, so its gradient is minus the sum of dy.
    `dy - ` → `dy + `
  the mean's path is not summed over the row
    Each entry moves all D results of its row: sum them.
    `dy.mean(-1, keepdims=True)` → `dy / dy.shape[-1]`
  the mean of the columns
    Each row has a mean of its own: axis=-1, with keepdims=True.
    `-1` → `0`
  the mean of the whole array
    Each row has a mean of its own: axis=-1, with keepdims=True.
    `-1, keepdims=True` → ``
  keepdims=True is missing
    A sum without keepdims is (N,), and NumPy lines that up with the columns.
    `, keepdims=True` → ``
  only the mean's path
    x goes into y twice: directly, and through the mean of its row.
    `dy - ` → `0 * dy - `
""")
