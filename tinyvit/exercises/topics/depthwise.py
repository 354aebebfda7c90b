"""Depthwise convolution, a filter for each channel, and its gradients."""

from tinyvit import functional as F
from tinyvit.exercises.exercise import Exercise
from tinyvit.exercises.topics.conv2d import ALL_BEHIND, CROP, arrays


def inputs(random, B, C, H, W, P, Q, p):
    return *arrays(random, (B, C, H, W), (C, P, Q)), p


def backward_inputs(random, B, C, H, W, P, Q, p):
    return *arrays(random, (B, C, H + 2 * p - P + 1, W + 2 * p - Q + 1), (B, C, H, W), (C, P, Q)), p


def convolved(x, weight, padding):
    return F.conv2d(x, weight[:, None], None, 1, padding, len(weight))


def right(dy, x, weight, padding):
    dx, dweight = F.conv2d_backward(dy, convolved(x, weight, padding)[1])
    return dx, dweight[:, 0]


SIZES = (
    {"B": 2, "C": 3, "H": 5, "W": 7, "P": 2, "Q": 3, "p": 1},
    {"B": 1, "C": 2, "H": 6, "W": 4, "P": 3, "Q": 2, "p": 2},
    {"B": 1, "C": 2, "H": 4, "W": 5, "P": 2, "Q": 3, "p": 0},
)
PADDING = "rows and columns of zeros on each side of the images"
FORWARD = Exercise(
    "depthwise_conv2d",
    "Slide a filter of its own over each channel of padded images: y[b, c, i, j] = Σ weight[c, u, v] · "
    "x[b, c, i + u, j + v] over u and v.",
    {"x": "(B, C, H, W)", "weight": "(C, P, Q)", "padding": PADDING},
    {"y": "(B, C, H', W'), where H' = H + 2 padding − P + 1, and W' alike"},
    right=lambda *arguments: convolved(*arguments)[0],
    shown=(F.conv2d,),
    inputs=inputs,
    sizes=SIZES,
)
BACKWARD = Exercise(
    "depthwise_conv2d_backward",
    "The gradients of a depthwise convolution of padded images: y[b, c, i, j] = Σ weight[c, u, v] · "
    "x[b, c, i + u, j + v] over u and v.",
    {
        "dy": "(B, C, H', W'), the gradient of y",
        "x": "(B, C, H, W), not padded",
        "weight": "(C, P, Q)",
        "padding": PADDING,
    },
    {"dx": "(B, C, H, W)", "dweight": "(C, P, Q)"},
    right=right,
    shown=(F.conv2d_backward,),
    inputs=backward_inputs,
    sizes=SIZES,
)
EXERCISES = FORWARD, BACKWARD

PRODUCT = "weight[:, u, v, None, None] * x[:, :, u : u + H, v : v + W]"

FORWARD.edit("the filters are turned round", "The place (u, v) meets the pixel (i + u, j + v).",
    "weight = weight[:, ::-1, ::-1]")
FORWARD.edit("one filter for all channels", "Each channel has a filter of its own.", "weight = weight[:1]")
FORWARD.edit("the padding is forgotten", "Zeros belong around the images, on all four sides.", "padding = 0")
FORWARD.edit("all of the padding below and on the right", "Half of it belongs above and on the left of the images.",
    ALL_BEHIND)
FORWARD.edit("a sum over the channels", "A depthwise convolution doesn't mix channels: there are as many after it.",
    (PRODUCT, f"({PRODUCT}).sum(1)"))
FORWARD.edit("a sum over the channels, in each of them", "A depthwise convolution doesn't mix channels: C stays in "
    "both arrays.", (PRODUCT, f"({PRODUCT}).sum(1, keepdims=True).repeat(x.shape[1], 1)"))

BACKWARD.edit("the filters are turned in dx", "The pixel (i + u, j + v) met weight[c, u, v], and gets its gradient "
    "from there. As a convolution of dy by the forward's formula the filters are turned round; as a sum over (u, v) "
    "they are not.", ("weight[:, u, v, None", "weight[:, P - 1 - u, Q - 1 - v, None"))
BACKWARD.edit("the padding is cut off at one end of dx", "There is padding in front of the images too: they begin at "
    "row and column `padding`.", (CROP, "[:, :, :H, :W]"))
BACKWARD.edit("the filters are turned in dweight", "dweight[c, u, v] is dy times what weight[c, u, v] met.",
    ("dweight[:, u, v]", "dweight[:, P - 1 - u, Q - 1 - v]"))
BACKWARD.edit("dweight with images padded below and on the right only", "Pad the images as in the forward, all around.",
    ALL_BEHIND)
BACKWARD.edit("the padding is not cut off of dx", "dx has the shape of x: without the rows and columns of zeros.",
    (CROP, ""))
BACKWARD.edit("dweight is of the first sample only", "Every sample used the filters: the sum is over all of them.",
    ("dy * x[:, :,", "dy[:1] * x[:1, :,"))
BACKWARD.edit("dweight is a mean over the batch", "Each sample used the filters, so their gradient is the sum over the "
    "samples.", ("W], dweight", "W], dweight / len(x)"))
