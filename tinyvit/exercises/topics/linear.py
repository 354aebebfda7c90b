"""The linear layer and its gradients."""

from tinyvit.exercises.exercise import exercise, lesson, normal_arrays


def inputs(random, B, N, D, K):
    return normal_arrays(random, (B, N, D), (K, D), (K,))


@exercise(inputs, ({"B": 2, "N": 3, "D": 4, "K": 5}, {"B": 3, "N": 2, "D": 7, "K": 1}), equal=dict.fromkeys("BNDK", 3))
def linear(x, weight, bias):
    """Map every row of x by y = x Wᵀ + b.

      x       (B, N, D)
      weight  W, (K, D)
      bias    b, (K,)

    returns
      y  (B, N, K)
    """
    return x @ weight.T + bias


lesson(linear, """
Package: tinyvit.functional.linear.linear

Hints:
  weight is (K, D) and a row of x has D numbers. Which product gives K numbers?
  (B, N, D) times (D, K), plus K numbers that broadcast.
  y = x Wᵀ + b, with b along the last axis.

Mistakes:
  weight is not transposed
    weight is (K, D): each output is the product of a row of x with a row of weight, x Wᵀ.
    `weight.T` → `weight`
  bias is forgotten
    Each of the outputs has a bias.
    ` + bias` → ``
  bias is added along the wrong axis
    There is one bias for each output: it goes along the last axis.
    `+ bias` → `+ bias[:, None]`
  bias is subtracted
    y = x Wᵀ + b.
    `+ bias` → `- bias`
""")


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


lesson(linear_backward, """
Package: tinyvit.functional.linear.linear_backward

Hints:
  How many rows of x met the same weight, and the same bias? What becomes of their gradients?
  dx is (B, N, K) times (K, D); dweight (K, rows) times (rows, D); dbias a sum over the rows.
  dx = dy W, dW = Σ over all rows dyᵀ x, db = Σ over all rows dy. With rows made of B and N by a reshape.

Holds:
  dbias: dbias should be dy, added up over all rows
    `dbias - dy.sum((0, 1))`
  dx: Σ x·dx should equal Σ W·dW: both are Σ dy·(x Wᵀ)
    `(dx * x).sum() - (dweight * weight).sum()`

Mistakes:
  wrong transpose in dx
    The forward multiplies x by Wᵀ, the backward dy by W. Check the shapes.
    `dy @ weight` → `dy @ weight.T`
  wrong transpose in dweight
    The gradient of weight has weight's shape, (K, D); what you return is its transpose, (D, K).
    `dy_rows.T @ x_rows` → `x_rows.T @ dy_rows`
  wrong transpose in dweight: .T reverses all three axes
    With three axes .T moves the batch to the end. Reshape dy and x to rows first: x.reshape(-1, D).
    `dy_rows.T @ x_rows` → `dy.T @ x`
  dweight is not summed over the batch
    every sample used weight, so its gradient is the sum over all samples.
    `dy_rows.T @ x_rows` → `dy.mT @ x`
  wrong transpose in dweight, and no sum over the batch
    every sample used weight, so its gradient is the sum over all samples; and yours for each is (D, K), where weight
    is (K, D).
    `dy_rows.T @ x_rows` → `x.mT @ dy`
  dweight is of the first sample only
    every sample used weight, so its gradient is the sum over all samples.
    `dy_rows.T @ x_rows` → `dy[0].T @ x[0]`
  the broadcast bias is not summed
    The bias was added to every row, so it gets a gradient from every row: the sum of dy over all axes but the last.
    `dy_rows.sum(0)` → `dy`
  the broadcast bias is summed over samples only
    The bias was added to each token of each sample: the sum goes over all axes but the last.
    `dy_rows.sum(0)` → `dy.sum(0)`
  the broadcast bias is summed over tokens only
    The bias was added to each token of each sample: the sum goes over all axes but the last.
    `dy_rows.sum(0)` → `dy.sum(1)`
  the bias's gradient is a mean
    The bias gets the sum of the gradients of all rows. There was no 1/N in the forward.
    `dy_rows.sum(0)` → `dy_rows.mean(0)`
""")
