"""The convolution of images with filters, and its gradients."""

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
)
EXERCISES = FORWARD, BACKWARD

PADDED = "(padding, padding)"
ALL_BEHIND = PADDED, "(0, 2 * padding)"

FORWARD.edit("the filters are turned round", "That is the convolution of mathematics (scipy.signal.convolve2d). In "
    "networks the filter stays as it is: the place (u, v) meets the pixel (s i + u, s j + v).",
    "weight = weight[..., ::-1, ::-1]")
FORWARD.edit("the stride is forgotten", "The windows move by stride pixels, and there are fewer of them.", "stride = 1")
FORWARD.edit("the first windows in place of every stride-th one", "The shape is right, but the windows are next to "
    "each other: window i starts at pixel stride · i.",
    ("u : u + stride * H : stride, v : v + stride * W : stride", "u : u + H, v : v + W"))
FORWARD.edit("the padding is forgotten", "Zeros belong around the images, on all four sides.", "padding = 0")
FORWARD.edit("padding below and on the right only", "The zeros stand on all four sides: np.pad takes (before, after) "
    "per axis.", (PADDED, "(0, padding)"))
FORWARD.edit("all of the padding below and on the right", "Half of it belongs above and on the left of the images.",
    ALL_BEHIND)
FORWARD.edit("padded with the pixels of the edge", "The padding is zeros: np.pad without a mode.",
    (f"{PADDED}))", f'{PADDED}), "edge")'))
FORWARD.edit("the bias is forgotten", "Each filter has a bias, which is added at all places.",
    (" + bias[:, None, None]", ""))
FORWARD.edit("bias is added along the columns", "There is one bias for each filter: bias[:, None, None] lines it up "
    "with O.", ("bias[:, None, None]", "bias"))
FORWARD.edit("the axes of filters and channels are exchanged", "weight is (O, C, P, Q): the sum goes over its second "
    "axis.", "weight = weight.swapaxes(0, 1)")
FORWARD.edit("rows and columns of the filters are exchanged", "u counts rows of the filter and of the image, v "
    "columns.", "weight = weight.mT")

THERE, NEXT_TO_EACH_OTHER = "[:, :, down, across]", "[:, :, u : u + rows, v : v + columns]"
CROP = "[:, :, padding : padding + H, padding : padding + W]"
BACKWARD.edit("the filters are turned in dx", "The pixel (s i + u, s j + v) met weight[…, u, v], and gets its gradient "
    "from there. If you write dx as a convolution of dy by the forward's formula, turn the filters round; if you add "
    "up over (u, v), don't.", ("weight[:, :, u, v], dy", "weight[:, :, P - 1 - u, Q - 1 - v], dy"))
BACKWARD.edit("the stride is forgotten in dx", "Window i saw the pixels s i + u: dy goes there, to every stride-th "
    "pixel.", (f"dx{THERE}", f"dx{NEXT_TO_EACH_OTHER}"))
BACKWARD.edit("dx is overwritten where windows overlap", "A pixel is in several windows, and its gradient is the sum "
    "over them: += in place of =.", ("+=", "="))
BACKWARD.edit("the padding is cut off at one end of dx", "There is padding in front of the images too: they begin at "
    "row and column `padding`.", (CROP, "[:, :, :H, :W]"))
BACKWARD.edit("the filters are turned in dweight", "dweight[…, u, v] is dy times what weight[…, u, v] met.",
    ("dweight[:, :, u, v]", "dweight[:, :, P - 1 - u, Q - 1 - v]"))
BACKWARD.edit("the stride is forgotten in dweight", "dy[i] belongs to the pixels s i + u, not i + u, in dweight as "
    "well.", (f"dy, x{THERE}", f"dy, x{NEXT_TO_EACH_OTHER}"))
BACKWARD.edit("dweight with images padded below and on the right only", "Pad the images as in the forward, all around.",
    ALL_BEHIND)
BACKWARD.edit("the broadcast bias is summed over samples only", "All places have the bias: sum over (0, 2, 3).",
    ("sum((0, 2, 3))", "sum(0)"))
BACKWARD.edit("the broadcast bias is summed over places only", "Each sample used the bias: sum over (0, 2, 3).",
    ("sum((0, 2, 3))", "sum((2, 3))"))
BACKWARD.edit("the broadcast bias is not summed", "It was added at all places of all samples.",
    ("dy.sum((0, 2, 3))", "dy"))
BACKWARD.edit("the padding is not cut off of dx", "dx has the shape of x: without the rows and columns of zeros.",
    (CROP, ""))
BACKWARD.edit("the bias's gradient is a mean", "All places used the bias: it gets the sum of their gradients.",
    ("sum((0, 2, 3))", "mean((0, 2, 3))"))
BACKWARD.edit("dweight is a mean over the batch", "Each sample used the filters, so their gradient is the sum over the "
    "samples.", ("W], dweight", "W], dweight / len(x)"))
BACKWARD.edit("the axes of filters and channels are exchanged in dx", "The sum over the filters is over weight's first "
    "axis.", ("weight[:, :, u, v], dy", "weight[:, :, u, v].T, dy"))
