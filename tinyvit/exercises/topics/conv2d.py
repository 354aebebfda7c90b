"""The convolution of images with filters, and its gradients."""

import numpy as np

from tinyvit import functional as F
from tinyvit.exercises.exercise import Exercise


def inputs(random, B, C, H, W, O, P, Q, s, p):  # noqa: E741
    return *arrays(random, (B, C, H, W), (O, C, P, Q), (O,)), s, p


def backward_inputs(random, B, C, H, W, O, P, Q, s, p):  # noqa: E741
    grid = (H + 2 * p - P) // s + 1, (W + 2 * p - Q) // s + 1
    return *arrays(random, (B, O, *grid), (B, C, H, W), (O, C, P, Q)), s, p


def arrays(random, *shapes):
    return tuple(random.standard_normal(shape) for shape in shapes)


def right(dy, x, weight, stride, padding):
    return F.conv2d_backward(dy, F.conv2d(x, weight, weight[:, 0, 0, 0], stride, padding)[1])


def offsets(weight):
    return np.ndindex(weight.shape[2:])


def placed(x, before, after, mode="constant"):
    return np.pad(x, ((0, 0), (0, 0), (before, after), (before, after)), mode)


def seen(start, shape, stride):
    """The pixels that one place of the filter sees in all windows, as an index."""
    rows, columns = (slice(first, first + stride * count, stride) for first, count in zip(start, shape[2:]))
    return slice(None), slice(None), rows, columns


def spread(dy, x, weight, stride, padding, added=True):
    """The gradient of the padded images; not added: a later place of the filter overwrites an earlier one."""
    dpadded = np.zeros_like(placed(x, padding, padding))
    for place in offsets(weight):
        there = seen(place, dy.shape, stride)
        moved = np.einsum("oc,bohw->bchw", weight[:, :, *place], dy)
        dpadded[there] = dpadded[there] + moved if added else moved
    return dpadded


def written(
    dy, x, weight, stride, padding, turned=False, step=None, crop=None, added=True, dturned=False, seen_at=None,
    dstep=None, dbias=(0, 2, 3),
):  # fmt: skip
    """All three gradients, with a switch for each step.

    turned, dturned   whether the filters are turned round in dx, and dweight's at the end
    step, dstep       the stride in dx and in dweight, if it is not that of the forward
    crop              where the images begin in the padded ones
    seen_at           where the images begin in what dweight is computed with
    """
    (H, W), filters = x.shape[2:], weight[..., ::-1, ::-1] if turned else weight
    dpadded, first = spread(dy, x, filters, step or stride, padding, added), padding if crop is None else crop
    start = padding if seen_at is None else seen_at
    padded, dweight = placed(x, start, 2 * padding - start), np.zeros_like(weight)
    for place in offsets(weight):
        dweight[:, :, *place] = np.einsum("bohw,bchw->oc", dy, padded[seen(place, dy.shape, dstep or stride)])
    dx = dpadded[:, :, first : first + H, first : first + W]
    return dx, dweight[..., ::-1, ::-1] if dturned else dweight, dy.sum(dbias)


SIZES = (
    {"B": 2, "C": 3, "H": 7, "W": 9, "O": 4, "P": 2, "Q": 3, "s": 2, "p": 1},
    {"B": 1, "C": 2, "H": 6, "W": 5, "O": 3, "P": 3, "Q": 2, "s": 1, "p": 2},
    {"B": 1, "C": 2, "H": 4, "W": 7, "O": 3, "P": 2, "Q": 3, "s": 2, "p": 0},
)
EQUAL = {"B": 3, "C": 3, "H": 3, "W": 3, "O": 3, "P": 3, "Q": 3, "s": 1, "p": 1}
GRID = "H' = (H + 2 padding − P) // stride + 1, and W' alike"
STRIDE, PADDING = "from a window to the next, in pixels", "rows and columns of zeros on each side of the images"
FORWARD = Exercise(
    "conv2d",
    "Slide filters over padded images: y[b, o, i, j] = bias[o] + Σ weight[o, c, u, v] · x[b, c, s i + u, s j + v] over "
    "c, u and v, with the stride s.",
    {"x": "(B, C, H, W)", "weight": "(O, C, P, Q)", "bias": "(O,)", "stride": STRIDE, "padding": PADDING},
    {"y": f"(B, O, H', W'), where {GRID}"},
    right=lambda *arguments: F.conv2d(*arguments)[0],
    shown=(F.conv2d,),
    inputs=inputs,
    sizes=SIZES,
    equal=EQUAL,
)
BACKWARD = Exercise(
    "conv2d_backward",
    "The gradients of a convolution of padded images: y[b, o, i, j] = bias[o] + Σ weight[o, c, u, v] · "
    "x[b, c, s i + u, s j + v] over c, u and v, with the stride s.",
    {
        "dy": f"(B, O, H', W'), the gradient of y; {GRID}",
        "x": "(B, C, H, W), not padded",
        "weight": "(O, C, P, Q)",
        "stride": STRIDE,
        "padding": PADDING,
    },
    {"dx": "(B, C, H, W)", "dweight": "(O, C, P, Q)", "dbias": "(O,)"},
    right=right,
    shown=(F.conv2d_backward,),
    inputs=backward_inputs,
    sizes=SIZES,
    equal=EQUAL,
    written=written,
)
EXERCISES = FORWARD, BACKWARD


@FORWARD.misreading(
    "the filters are turned round",
    "That is the convolution of mathematics (scipy.signal.convolve2d). In networks the filter stays as it is: the "
    "place (u, v) meets the pixel (s i + u, s j + v).",
)
def turned_round(x, weight, bias, stride, padding):
    return x, weight[..., ::-1, ::-1], bias, stride, padding


@FORWARD.misreading("the stride is forgotten", "The windows move by stride pixels, and there are fewer of them.")
def stride_forgotten(x, weight, bias, stride, padding):
    return x, weight, bias, 1, padding


@FORWARD.mistake(
    "the first windows in place of every stride-th one",
    "The shape is right, but the windows are next to each other: window i starts at pixel stride · i.",
)
def first_windows(x, weight, bias, stride, padding):
    _, _, rows, columns = F.conv2d(x, weight, bias, stride, padding)[0].shape
    return F.conv2d(x, weight, bias, 1, padding)[0][:, :, :rows, :columns]


@FORWARD.misreading("the padding is forgotten", "Zeros belong around the images, on all four sides.")
def padding_forgotten(x, weight, bias, stride, padding):
    return x, weight, bias, stride, 0


@FORWARD.mistake(
    "padding below and on the right only", "The zeros stand on all four sides: np.pad takes (before, after) per axis."
)
def padding_at_the_end(x, weight, bias, stride, padding):
    return F.conv2d(placed(x, 0, padding), weight, bias, stride)[0]


@FORWARD.mistake(
    "all of the padding below and on the right", "Half of it belongs above and on the left of the images."
)
def all_padding_at_the_end(x, weight, bias, stride, padding):
    return F.conv2d(placed(x, 0, 2 * padding), weight, bias, stride)[0]


@FORWARD.mistake("padded with the pixels of the edge", "The padding is zeros: np.pad without a mode.")
def padded_with_the_edge(x, weight, bias, stride, padding):
    return F.conv2d(placed(x, padding, padding, "edge"), weight, bias, stride)[0]


@FORWARD.misreading("the bias is forgotten", "Each filter has a bias, which is added at all places.")
def bias_forgotten(x, weight, bias, stride, padding):
    return x, weight, np.zeros_like(bias), stride, padding


@FORWARD.mistake(
    "bias is added along the columns", "There is one bias for each filter: bias[:, None, None] lines it up with O."
)
def bias_along_the_columns(x, weight, bias, stride, padding):
    return F.conv2d(x, weight, None, stride, padding)[0] + bias


@FORWARD.mistake(
    "the axes of filters and channels are exchanged", "weight is (O, C, P, Q): the sum goes over its second axis."
)
def filters_for_channels(x, weight, bias, stride, padding):
    return F.conv2d(x, weight.swapaxes(0, 1), bias, stride, padding)[0]


@FORWARD.mistake(
    "rows and columns of the filters are exchanged", "u counts rows of the filter and of the image, v columns."
)
def filters_transposed(x, weight, bias, stride, padding):
    return F.conv2d(x, weight.mT, bias, stride, padding)[0]


BACKWARD.variant(
    "the filters are turned in dx",
    "The pixel (s i + u, s j + v) met weight[…, u, v], and gets its gradient from there. If you write dx as a "
    "convolution of dy by the forward's formula, turn the filters round; if you add up over (u, v), don't.",
    turned=True,
)
BACKWARD.variant(
    "the stride is forgotten in dx", "Window i saw the pixels s i + u: dy goes there, to every stride-th pixel.", step=1
)
BACKWARD.variant(
    "dx is overwritten where windows overlap",
    "A pixel is in several windows, and its gradient is the sum over them: += in place of =.",
    added=False,
)
BACKWARD.variant(
    "the padding is cut off at one end of dx",
    "There is padding in front of the images too: they begin at row and column `padding`.",
    crop=0,
)
BACKWARD.variant(
    "the filters are turned in dweight", "dweight[…, u, v] is dy times what weight[…, u, v] met.", dturned=True
)
BACKWARD.variant(
    "the stride is forgotten in dweight", "dy[i] belongs to the pixels s i + u, not i + u, in dweight as well.", dstep=1
)
BACKWARD.variant(
    "dweight with images padded below and on the right only", "Pad the images as in the forward, all around.", seen_at=0
)
BACKWARD.variant(
    "the broadcast bias is summed over samples only", "All places have the bias: sum over (0, 2, 3).", dbias=0
)
BACKWARD.variant(
    "the broadcast bias is summed over places only", "Each sample used the bias: sum over (0, 2, 3).", dbias=(2, 3)
)
BACKWARD.variant("the broadcast bias is not summed", "It was added at all places of all samples.", dbias=())


@BACKWARD.mistake("the padding is not cut off of dx", "dx has the shape of x: without the rows and columns of zeros.")
def padding_kept(dy, x, weight, stride, padding):
    return {"dx": spread(dy, x, weight, stride, padding)}


@BACKWARD.mistake(
    "the bias's gradient is a mean", "All places used the bias: it gets the sum of their gradients."
)
def bias_mean(dy, x, weight, stride, padding):
    return {"dbias": dy.mean((0, 2, 3))}


@BACKWARD.mistake(
    "dweight is a mean over the batch", "Each sample used the filters, so their gradient is the sum over the samples."
)
def dweight_mean(dy, x, weight, stride, padding):
    return {"dweight": right(dy, x, weight, stride, padding)[1] / len(x)}


@BACKWARD.mistake(
    "the axes of filters and channels are exchanged in dx", "The sum over the filters is over weight's first axis."
)
def filters_for_channels_in_dx(dy, x, weight, stride, padding):
    return {"dx": written(dy, x, weight.swapaxes(0, 1), stride, padding)[0]}
