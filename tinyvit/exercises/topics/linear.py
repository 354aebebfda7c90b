"""The linear layer and its gradients."""

from tinyvit import functional as F
from tinyvit.exercises.exercise import Exercise


def inputs(random, B, N, D, K):
    return random.standard_normal((B, N, D)), random.standard_normal((K, D)), random.standard_normal(K)


def backward_inputs(random, B, N, D, K):
    return random.standard_normal((B, N, K)), random.standard_normal((B, N, D)), random.standard_normal((K, D))


SIZES = {"B": 2, "N": 3, "D": 4, "K": 5}, {"B": 3, "N": 2, "D": 7, "K": 1}
EQUAL = {"B": 3, "N": 3, "D": 3, "K": 3}
FORWARD = Exercise(
    "linear",
    "Map every row of x by y = x Wᵀ + b.",
    {"x": "(B, N, D)", "weight": "W, (K, D)", "bias": "b, (K,)"},
    {"y": "(B, N, K)"},
    right=lambda *arguments: F.linear(*arguments)[0],
    shown=(F.linear,),
    inputs=inputs,
    sizes=SIZES,
    equal=EQUAL,
)
BACKWARD = Exercise(
    "linear_backward",
    "The gradients of y = x Wᵀ + b.",
    {"dy": "(B, N, K), the gradient of y", "x": "(B, N, D)", "weight": "W, (K, D)"},
    {"dx": "(B, N, D)", "dweight": "(K, D)", "dbias": "(K,)"},
    right=lambda dy, x, weight: F.linear_backward(dy, F.linear(x, weight, weight[:, 0])[1]),
    shown=(F.linear_backward,),
    inputs=backward_inputs,
    sizes=SIZES,
    equal=EQUAL,
)
EXERCISES = FORWARD, BACKWARD

DWEIGHT, DBIAS = "dy_rows.T @ x_rows", "dy_rows.sum(0)"
EVERY_SAMPLE = "every sample used weight, so its gradient is the sum over all samples"
ALL_ROWS = "The bias was added to each token of each sample: the sum goes over all axes but the last."

FORWARD.edit("weight is not transposed", "weight is (K, D): each output is the product of a row of x with a row of "
    "weight, x Wᵀ.", ("weight.T", "weight"))
FORWARD.edit("bias is forgotten", "Each of the outputs has a bias.", (" + bias", ""))
FORWARD.edit("bias is added along the wrong axis", "There is one bias for each output: it goes along the last axis.",
    ("+ bias", "+ bias[:, None]"))
FORWARD.edit("bias is subtracted", "y = x Wᵀ + b.", ("+ bias", "- bias"))

BACKWARD.edit("wrong transpose in dx", "The forward multiplies x by Wᵀ, the backward dy by W. Check the shapes.",
    ("dy @ weight", "dy @ weight.T"))
BACKWARD.edit("wrong transpose in dweight", "The gradient of weight has weight's shape, (K, D); what you return is its "
    "transpose, (D, K).", (DWEIGHT, "x_rows.T @ dy_rows"))
BACKWARD.edit("wrong transpose in dweight: .T reverses all three axes", "With three axes .T moves the batch to the "
    "end. Reshape dy and x to rows first: x.reshape(-1, D).", (DWEIGHT, "dy.T @ x"))
BACKWARD.edit("dweight is not summed over the batch", f"{EVERY_SAMPLE}.", (DWEIGHT, "dy.mT @ x"))
BACKWARD.edit("wrong transpose in dweight, and no sum over the batch",
    f"{EVERY_SAMPLE}; and yours for each is (D, K), where weight is (K, D).", (DWEIGHT, "x.mT @ dy"))
BACKWARD.edit("dweight is of the first sample only", f"{EVERY_SAMPLE}.", (DWEIGHT, "dy[0].T @ x[0]"))
BACKWARD.edit("the broadcast bias is not summed", "The bias was added to every row, so it gets a gradient from every "
    "row: the sum of dy over all axes but the last.", (DBIAS, "dy"))
BACKWARD.edit("the broadcast bias is summed over samples only", ALL_ROWS, (DBIAS, "dy.sum(0)"))
BACKWARD.edit("the broadcast bias is summed over tokens only", ALL_ROWS, (DBIAS, "dy.sum(1)"))
BACKWARD.edit("the bias's gradient is a mean", "The bias gets the sum of the gradients of all rows. There was no 1/N "
    "in the forward.", (DBIAS, "dy_rows.mean(0)"))
