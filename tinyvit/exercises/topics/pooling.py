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

RELU.edit("the gradient at 0 is 1", "At 0 it is 0, as in PyTorch: x > 0, not x >= 0.", (">", ">="))
RELU.edit("dy is cut off where it is negative", "What counts is the sign of x, not that of dy.", ("x > 0", "dy > 0"))
RELU.edit("the gradient where x is negative", "ReLU passes x where it is positive: there is its gradient.", (">", "<"))
RELU.edit("dy times the output", "The derivative is 1 where x is positive, not x.", ("(x > 0)", "np.maximum(x, 0)"))
RELU.edit("dy times the sign of x", "Where x is negative, y doesn't move at all: 0, not −1.", ("(x > 0)", "np.sign(x)"))

MAX.edit("the mean of each window", "That is average pooling.", ("np.max", "np.mean"))
MAX.edit("the smallest number of each window", "The largest is asked for.", ("np.max", "np.min"))
MAX.edit("the largest absolute value", "−5 is smaller than 2.", ("np.max(seen", "np.max(np.abs(seen)"))
MAX.edit("the stride is the window's side", "The windows move by stride pixels, and may overlap.", "stride = kernel")
MAX.edit("the stride is 1", "The windows move by stride pixels.", "stride = 1")
MAX.edit("the largest over the channels, too", "Each channel is pooled by itself.", ("(seen, 0)", "(seen, (0, 2))"))

LARGEST = "np.unravel_index(window.argmax(), window.shape)"
SHARE = "dy[b, c, i, j]"
OVERWRITTEN = "dx is overwritten where windows overlap"
ONE = "One of them made the result: the first, row by row."
MAX_BACKWARD.edit("equal ones all get the gradient", ONE, (LARGEST, "window == window.max()"))
MAX_BACKWARD.edit("equal ones share the gradient", ONE, (LARGEST, "window == window.max()"),
    (SHARE, f"{SHARE} / largest.sum()"))
MAX_BACKWARD.edit("the last of equal ones", "The first of them gets the gradient, row by row.",
    (LARGEST, "tuple(np.argwhere(window == window.max())[-1])"))
MAX_BACKWARD.edit(OVERWRITTEN, "A pixel can be the largest of several windows: += in place of =.", ("+=", "="))
MAX_BACKWARD.edit("every pixel of a window gets its gradient", "Only the largest one moves the result.",
    ("[largest]", "[:]"))
MAX_BACKWARD.edit("the gradient of average pooling", "The largest pixel gets all of it, the others nothing.",
    ("[largest]", "[:]"), (SHARE, f"{SHARE} / kernel**2"))

AVG_BACKWARD.edit("not divided by the pixels of a window", "Each pixel is 1/(P·P) of the mean.", (" / kernel**2", ""))
AVG_BACKWARD.edit("divided by the window's side", "A window has P·P pixels, not P.", ("kernel**2", "kernel"))
AVG_BACKWARD.edit(OVERWRITTEN, "A pixel is in several windows, and gets a share of each: += in place of =.",
    ("+=", "="))
AVG_BACKWARD.edit("the first pixel of each window gets all", "Every pixel of a window is 1/(P·P) of its mean.",
    ("range(kernel)", "range(1)"), (" / kernel**2", ""))
AVG_BACKWARD.edit("the stride is forgotten", "Window i begins at the pixel stride · i: dy goes to every stride-th "
    "pixel and its neighbours.", "stride = 1")
