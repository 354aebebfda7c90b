"""The linear layer and its gradients."""

import numpy as np

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


@FORWARD.mistake(
    "weight is not transposed", "weight is (K, D): each output is the product of a row of x with a row of weight, x Wᵀ."
)
def not_transposed(x, weight, bias):
    return x @ weight + bias


@FORWARD.misreading("bias is forgotten", "Each of the outputs has a bias.")
def without_bias(x, weight, bias):
    return x, weight, np.zeros_like(bias)


@FORWARD.mistake(
    "bias is added along the wrong axis", "There is one bias for each output: it goes along the last axis."
)
def bias_along_the_tokens(x, weight, bias):
    return x @ weight.T + bias[:, None]


@FORWARD.misreading("bias is subtracted", "y = x Wᵀ + b.")
def bias_subtracted(x, weight, bias):
    return x, weight, -bias


@BACKWARD.mistake("wrong transpose in dx", "The forward multiplies x by Wᵀ, the backward dy by W. Check the shapes.")
def dx_transposed(dy, x, weight):
    return {"dx": dy @ weight.T}


@BACKWARD.mistake(
    "wrong transpose in dweight",
    "The gradient of weight has weight's shape, (K, D); what you return is its transpose, (D, K).",
)
def dweight_transposed(dy, x, weight):
    return {"dweight": rows(x).T @ rows(dy)}


@BACKWARD.mistake(
    "wrong transpose in dweight: .T reverses all three axes",
    "With three axes .T moves the batch to the end. Reshape dy and x to rows first: x.reshape(-1, D).",
)
def dweight_reversed(dy, x, weight):
    return {"dweight": dy.T @ x}


@BACKWARD.mistake(
    "dweight is not summed over the batch", "every sample used weight, so its gradient is the sum over all samples."
)
def dweight_of_each_sample(dy, x, weight):
    return {"dweight": dy.mT @ x}


@BACKWARD.mistake(
    "wrong transpose in dweight, and no sum over the batch",
    "every sample used weight, so its gradient is the sum over all samples; and yours for each is (D, K), where "
    "weight is (K, D).",
)
def dweight_of_each_sample_transposed(dy, x, weight):
    return {"dweight": x.mT @ dy}


@BACKWARD.mistake(
    "dweight is of the first sample only", "every sample used weight, so its gradient is the sum over all samples."
)
def dweight_of_one_sample(dy, x, weight):
    return {"dweight": dy[0].T @ x[0]}


@BACKWARD.mistake(
    "the broadcast bias is not summed",
    "The bias was added to every row, so it gets a gradient from every row: the sum of dy over all axes but the last.",
)
def dbias_not_summed(dy, x, weight):
    return {"dbias": dy}


@BACKWARD.mistake(
    "the broadcast bias is summed over samples only",
    "The bias was added to each token of each sample: the sum goes over all axes but the last.",
)
def dbias_of_each_token(dy, x, weight):
    return {"dbias": dy.sum(0)}


@BACKWARD.mistake(
    "the broadcast bias is summed over tokens only",
    "The bias was added to each token of each sample: the sum goes over all axes but the last.",
)
def dbias_of_each_sample(dy, x, weight):
    return {"dbias": dy.sum(1)}


@BACKWARD.mistake(
    "the bias's gradient is a mean",
    "The bias gets the sum of the gradients of all rows. There was no 1/N in the forward.",
)
def dbias_mean(dy, x, weight):
    return {"dbias": dy.mean((0, 1))}


def rows(x):
    return x.reshape(-1, x.shape[-1])
