"""ReLU and pooling, and their gradients."""

import numpy as np

from tinyvit import functional as F
from tinyvit.exercises.exercise import Exercise


def relu_inputs(random, B, C, H, W):
    x = random.integers(-3, 4, (B, C, H, W)).astype("float64")                 # with zeros
    return random.standard_normal(x.shape), x


def pool_inputs(random, B, C, H, W, P, s):
    return random.standard_normal((B, C, H, W)), P, s


def grid(H, W, P, s):
    return (H - P) // s + 1, (W - P) // s + 1


def max_backward_inputs(random, B, C, H, W, P, s):
    x = random.integers(0, 3, (B, C, H, W)).astype("float64")                  # with equal ones in a window
    return random.standard_normal((B, C, *grid(H, W, P, s))), x, P, s


def avg_backward_inputs(random, B, C, H, W, P, s):
    return random.standard_normal((B, C, *grid(H, W, P, s))), P, s, (H, W)


def windows(x, kernel, stride):
    """The windows of x: (B, C, H', W', P, P)."""
    return np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), (2, 3))[:, :, ::stride, ::stride]


def scatter(shares, shape, stride, added=True):
    """(B, C, H, W) from what each window gives to its pixels, (B, C, H', W', P, P)."""
    rows, columns, kernel, _ = shares.shape[2:]
    dx = np.zeros(shape)
    for u, v in np.ndindex(kernel, kernel):
        there = np.s_[:, :, u : u + stride * rows : stride, v : v + stride * columns : stride]
        dx[there] = shares[..., u, v] + (dx[there] if added else 0)
    return dx


RELU_SIZES = {"B": 2, "C": 3, "H": 4, "W": 5}, {"B": 1, "C": 2, "H": 3, "W": 7}
SIZES = {"B": 2, "C": 3, "H": 6, "W": 9, "P": 3, "s": 2}, {"B": 1, "C": 2, "H": 7, "W": 4, "P": 2, "s": 1}
KERNEL, STRIDE = "P, the side of a window in pixels", "from a window to the next, in pixels"
POOLED = "(B, C, H', W'), where H' = (H − P) // stride + 1, and W' alike"
RELU = Exercise(
    "relu_backward",
    "The gradient of y = max(x, 0); at x = 0 it is 0.",
    {"dy": "(B, C, H, W), the gradient of y", "x": "(B, C, H, W)"},
    {"dx": "(B, C, H, W)"},
    right=lambda dy, x: F.relu_backward(dy, F.relu(x)[1]),
    shown=(F.relu, F.relu_backward),
    inputs=relu_inputs,
    sizes=RELU_SIZES,
)
MAX = Exercise(
    "max_pool2d",
    "The largest number of each window of P×P pixels, of each channel by itself.",
    {"x": "(B, C, H, W)", "kernel": KERNEL, "stride": STRIDE},
    {"y": POOLED},
    right=lambda x, kernel, stride: F.max_pool2d(x, kernel, stride)[0],
    shown=(F.max_pool2d,),
    inputs=pool_inputs,
    sizes=SIZES,
)
MAX_BACKWARD = Exercise(
    "max_pool2d_backward",
    "The gradient of max pooling: each window's goes to its largest pixel, of equal ones to the first, row by row.",
    {"dy": f"{POOLED}: the gradient of y", "x": "(B, C, H, W)", "kernel": KERNEL, "stride": STRIDE},
    {"dx": "(B, C, H, W)"},
    right=lambda dy, x, kernel, stride: F.max_pool2d_backward(dy, F.max_pool2d(x, kernel, stride)[1]),
    shown=(F.max_pool2d_backward,),
    inputs=max_backward_inputs,
    sizes=SIZES,
)
AVG_BACKWARD = Exercise(
    "avg_pool2d_backward",
    "The gradient of average pooling, whose results are the means of windows of P×P pixels.",
    {"dy": f"{POOLED}: the gradient of y", "kernel": KERNEL, "stride": STRIDE, "img_size": "(H, W) of the images"},
    {"dx": "(B, C, H, W)"},
    right=lambda dy, kernel, stride, img_size: F.avg_pool2d_backward(
        dy, F.avg_pool2d(np.zeros((*dy.shape[:2], *img_size)), kernel, stride)[1]
    ),
    shown=(F.avg_pool2d_backward,),
    inputs=avg_backward_inputs,
    sizes=SIZES,
)
EXERCISES = RELU, MAX, MAX_BACKWARD, AVG_BACKWARD

# -- ReLU -------------------------------------------------------------------------------------------------------------


@RELU.mistake("the gradient at 0 is 1", "At 0 it is 0, as in PyTorch: x > 0, not x >= 0.")
def one_at_zero(dy, x):
    return dy * (x >= 0)


@RELU.mistake("dy is cut off where it is negative", "What counts is the sign of x, not that of dy.")
def sign_of_dy(dy, x):
    return np.maximum(dy, 0)


@RELU.mistake("the gradient where x is negative", "ReLU passes x where it is positive: there is its gradient.")
def negative_side(dy, x):
    return dy * (x < 0)


@RELU.mistake("dy times the output", "The derivative is 1 where x is positive, not x.")
def times_output(dy, x):
    return dy * np.maximum(x, 0)


@RELU.mistake("dy times the sign of x", "Where x is negative, y doesn't move at all: 0, not −1.")
def times_sign(dy, x):
    return dy * np.sign(x)


# -- max pooling ------------------------------------------------------------------------------------------------------


@MAX.mistake("the mean of each window", "That is average pooling.")
def mean_of_windows(x, kernel, stride):
    return windows(x, kernel, stride).mean((-2, -1))


@MAX.mistake("the smallest number of each window", "The largest is asked for.")
def smallest(x, kernel, stride):
    return windows(x, kernel, stride).min((-2, -1))


@MAX.mistake("the largest absolute value", "−5 is smaller than 2.")
def largest_absolute(x, kernel, stride):
    return abs(windows(x, kernel, stride)).max((-2, -1))


@MAX.misreading("the stride is the window's side", "The windows move by stride pixels, and may overlap.")
def stride_of_the_kernel(x, kernel, stride):
    return x, kernel, kernel


@MAX.misreading("the stride is 1", "The windows move by stride pixels.")
def stride_of_one(x, kernel, stride):
    return x, kernel, 1


@MAX.mistake("the largest over the channels, too", "Each channel is pooled by itself.")
def over_channels(x, kernel, stride):
    return windows(x, kernel, stride).max((1, -2, -1))


def largest_of(x, kernel, stride):
    """Whether a pixel is the first of the largest of its window, (B, C, H', W', P, P)."""
    seen = windows(x, kernel, stride)
    flat = seen.reshape(*seen.shape[:4], -1)
    return (np.arange(kernel**2) == flat.argmax(-1)[..., None]).reshape(seen.shape)


def tied(x, kernel, stride):
    seen = windows(x, kernel, stride)
    return seen == seen.max((-2, -1), keepdims=True)


@MAX_BACKWARD.mistake("equal ones all get the gradient", "One of them made the result: the first, row by row.")
def all_equal_ones(dy, x, kernel, stride):
    return scatter(dy[..., None, None] * tied(x, kernel, stride), x.shape, stride)


@MAX_BACKWARD.mistake("equal ones share the gradient", "One of them made the result: the first, row by row.")
def equal_ones_share(dy, x, kernel, stride):
    ties = tied(x, kernel, stride)
    return scatter(dy[..., None, None] * ties / ties.sum((-2, -1), keepdims=True), x.shape, stride)


@MAX_BACKWARD.mistake("the last of equal ones", "The first of them gets the gradient, row by row.")
def last_of_equal_ones(dy, x, kernel, stride):
    turned = largest_of(x[..., ::-1, ::-1], kernel, 1)[..., ::-1, ::-1, ::-1, ::-1][:, :, ::stride, ::stride]
    return scatter(dy[..., None, None] * turned, x.shape, stride)


@MAX_BACKWARD.mistake(
    "dx is overwritten where windows overlap", "A pixel can be the largest of several windows: += in place of =."
)
def overwritten(dy, x, kernel, stride):
    dx, found = np.zeros_like(x), largest_of(x, kernel, stride)
    for b, c, i, j in np.ndindex(dy.shape):
        u, v = np.argwhere(found[b, c, i, j])[0]
        dx[b, c, i * stride + u, j * stride + v] = dy[b, c, i, j]
    return dx


@MAX_BACKWARD.mistake("every pixel of a window gets its gradient", "Only the largest one moves the result.")
def every_pixel(dy, x, kernel, stride):
    return scatter(np.broadcast_to(dy[..., None, None], (*dy.shape, kernel, kernel)), x.shape, stride)


@MAX_BACKWARD.mistake("the gradient of average pooling", "The largest pixel gets all of it, the others nothing.")
def as_a_mean(dy, x, kernel, stride):
    return every_pixel(dy, x, kernel, stride) / kernel**2


# -- average pooling --------------------------------------------------------------------------------------------------


def shared(dy, kernel):
    return np.broadcast_to(dy[..., None, None], (*dy.shape, kernel, kernel)) / kernel**2


@AVG_BACKWARD.mistake("not divided by the pixels of a window", "Each pixel is 1/(P·P) of the mean.")
def not_divided(dy, kernel, stride, img_size):
    return scatter(shared(dy, kernel) * kernel**2, (*dy.shape[:2], *img_size), stride)


@AVG_BACKWARD.mistake("divided by the window's side", "A window has P·P pixels, not P.")
def divided_by_the_side(dy, kernel, stride, img_size):
    return scatter(shared(dy, kernel) * kernel, (*dy.shape[:2], *img_size), stride)


@AVG_BACKWARD.mistake(
    "dx is overwritten where windows overlap",
    "A pixel is in several windows, and gets a share of each: += in place of =.",
)
def mean_overwritten(dy, kernel, stride, img_size):
    return scatter(shared(dy, kernel), (*dy.shape[:2], *img_size), stride, added=False)


@AVG_BACKWARD.mistake("the first pixel of each window gets all", "Every pixel of a window is 1/(P·P) of its mean.")
def first_pixel(dy, kernel, stride, img_size):
    shares = np.zeros((*dy.shape, kernel, kernel))
    shares[..., 0, 0] = dy
    return scatter(shares, (*dy.shape[:2], *img_size), stride)


@AVG_BACKWARD.mistake(
    "the stride is forgotten",
    "Window i begins at the pixel stride · i: dy goes to every stride-th pixel and its neighbours.",
)
def mean_without_stride(dy, kernel, stride, img_size):
    return scatter(shared(dy, kernel), (*dy.shape[:2], *img_size), 1)
