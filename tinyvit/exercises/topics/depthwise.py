"""Depthwise convolution, a filter for each channel, and its gradients."""

import numpy as np

from tinyvit import functional as F
from tinyvit.exercises.exercise import Exercise
from tinyvit.exercises.topics.conv2d import arrays, placed


def inputs(random, B, C, H, W, P, Q, p):
    return *arrays(random, (B, C, H, W), (C, P, Q)), p


def backward_inputs(random, B, C, H, W, P, Q, p):
    return *arrays(random, (B, C, H + 2 * p - P + 1, W + 2 * p - Q + 1), (B, C, H, W), (C, P, Q)), p


def convolved(x, weight, padding):
    return F.conv2d(x, weight[:, None], None, 1, padding, len(weight))


def right(dy, x, weight, padding):
    dx, dweight = F.conv2d_backward(dy, convolved(x, weight, padding)[1])
    return dx, dweight[:, 0]


def seen(place, dy):
    rows, columns = (slice(first, first + count) for first, count in zip(place, dy.shape[2:]))
    return slice(None), slice(None), rows, columns


def written(dy, x, weight, padding, turned=False, crop=None, dturned=False, seen_at=None):
    """Both gradients, with a switch for each step.

    turned, dturned   whether the filters are turned round in dx, and dweight's at the end
    crop              where the images begin in the padded ones
    seen_at           where they begin in what dweight is computed with
    """
    (H, W), filters = x.shape[2:], weight[:, ::-1, ::-1] if turned else weight
    start, first = padding if seen_at is None else seen_at, padding if crop is None else crop
    padded, dpadded = placed(x, start, 2 * padding - start), np.zeros_like(placed(x, padding, padding))
    dweight = np.zeros_like(weight)
    for u, v in np.ndindex(weight.shape[1:]):
        dpadded[seen((u, v), dy)] += filters[:, u, v, None, None] * dy
        dweight[:, u, v] = np.einsum("bcij,bcij->c", dy, padded[seen((u, v), dy)])
    dx = dpadded[:, :, first : first + H, first : first + W]
    return dx, dweight[:, ::-1, ::-1] if dturned else dweight


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
    written=written,
)
EXERCISES = FORWARD, BACKWARD


@FORWARD.misreading("the filters are turned round", "The place (u, v) meets the pixel (i + u, j + v).")
def turned_round(x, weight, padding):
    return x, weight[:, ::-1, ::-1], padding


@FORWARD.misreading("one filter for all channels", "Each channel has a filter of its own.")
def first_filter(x, weight, padding):
    return x, np.broadcast_to(weight[:1], weight.shape), padding


@FORWARD.misreading("the padding is forgotten", "Zeros belong around the images, on all four sides.")
def padding_forgotten(x, weight, padding):
    return x, weight, 0


@FORWARD.mistake("all of the padding below and on the right", "Half of it belongs above and on the left of the images.")
def all_padding_at_the_end(x, weight, padding):
    return convolved(placed(x, 0, 2 * padding), weight, 0)[0]


@FORWARD.mistake("a sum over the channels", "A depthwise convolution doesn't mix channels: there are as many after it.")
def summed(x, weight, padding):
    return convolved(x, weight, padding)[0].sum(1)


@FORWARD.mistake(
    "a sum over the channels, in each of them", "A depthwise convolution doesn't mix channels: C stays in both arrays."
)
def summed_in_each(x, weight, padding):
    y = convolved(x, weight, padding)[0]
    return np.broadcast_to(y.sum(1, keepdims=True), y.shape)


BACKWARD.variant(
    "the filters are turned in dx",
    "The pixel (i + u, j + v) met weight[c, u, v], and gets its gradient from there. As a convolution of dy by the "
    "forward's formula the filters are turned round; as a sum over (u, v) they are not.",
    turned=True,
)
BACKWARD.variant(
    "the padding is cut off at one end of dx",
    "There is padding in front of the images too: they begin at row and column `padding`.",
    crop=0,
)
BACKWARD.variant(
    "the filters are turned in dweight", "dweight[c, u, v] is dy times what weight[c, u, v] met.", dturned=True
)
BACKWARD.variant(
    "dweight with images padded below and on the right only", "Pad the images as in the forward, all around.", seen_at=0
)


@BACKWARD.mistake("the padding is not cut off of dx", "dx has the shape of x: without the rows and columns of zeros.")
def padding_kept(dy, x, weight, padding):
    return {"dx": right(dy, placed(x, padding, padding), weight, 0)[0]}


@BACKWARD.mistake("dweight is of the first sample only", "Every sample used the filters: the sum is over all of them.")
def of_the_first_sample(dy, x, weight, padding):
    return {"dweight": right(dy[:1], x[:1], weight, padding)[1]}


@BACKWARD.mistake(
    "dweight is a mean over the batch", "Each sample used the filters, so their gradient is the sum over the samples."
)
def dweight_mean(dy, x, weight, padding):
    return {"dweight": right(dy, x, weight, padding)[1] / len(x)}
