"""Images into patches, and the gradient."""

from tinyvit import functional as F
from tinyvit.exercises.exercise import Exercise


def inputs(random, B, C, H, W, P, Q):
    return random.standard_normal((B, C, H, W)), (P, Q)


def backward_inputs(random, B, C, H, W, P, Q):
    return random.standard_normal((B, H * W // (P * Q), C * P * Q)), (P, Q), (H, W)


SIZES = {"B": 2, "C": 3, "H": 6, "W": 12, "P": 2, "Q": 3}, {"B": 1, "C": 2, "H": 4, "W": 4, "P": 4, "Q": 2}
FORWARD = Exercise(
    "patchify",
    "Cut images into patches, row by row from the top left. The numbers of a patch stand in the order C, P, Q.",
    {"images": "(B, C, H, W)", "patch": "(P, Q), a patch's height and width"},
    {"patches": "(B, N, C·P·Q), where N = H/P · W/Q"},
    right=lambda images, patch: F.patchify(images, patch)[0],
    shown=(F.patchify,),
    inputs=inputs,
    sizes=SIZES,
)
BACKWARD = Exercise(
    "patchify_backward",
    "The gradient of cutting images into patches: every number goes back to the pixel that it came from.",
    {
        "dy": "(B, N, C·P·Q), the gradient of the patches",
        "patch": "(P, Q), a patch's height and width",
        "img_size": "(H, W) of the images",
    },
    {"dimages": "(B, C, H, W)"},
    right=lambda dy, patch, img_size: F.unpatchify(dy, patch, img_size)[0],
    shown=(F.patchify_backward, F.unpatchify),
    inputs=backward_inputs,
    sizes=SIZES,
)
EXERCISES = FORWARD, BACKWARD


def cut(images, patch):
    """Images as (B, C, rows, P, columns, Q)."""
    B, C, H, W = images.shape
    p, q = patch
    return images.reshape(B, C, H // p, p, W // q, q)


def joined(patches, images, patch):
    return patches.reshape(len(images), -1, images.shape[1] * patch[0] * patch[1])


RESHAPE = "A reshape never moves a number. The rows of a patch are W numbers apart in the image: "


@FORWARD.mistake(
    "reshape without transpose", RESHAPE + "split H and W in two axes each, transpose, and only then put axes together."
)
def only_reshaped(images, patch):
    return joined(images, images, patch)


@FORWARD.mistake(
    "axes put together before they are transposed",
    RESHAPE + "H and W were split in two axes each; now bring rows and columns of patches to the front.",
)
def split_not_transposed(images, patch):
    return joined(cut(images, patch).transpose(0, 2, 1, 3, 4, 5), images, patch)


@FORWARD.mistake("patches column by column", "The second patch lies to the right of the first, not below it.")
def column_by_column(images, patch):
    return joined(cut(images, patch).transpose(0, 4, 2, 1, 3, 5), images, patch)


@FORWARD.mistake(
    "channels last within a patch", "The order is C, P, Q, as in a convolution's weight; yours is P, Q, C."
)
def channels_last(images, patch):
    return joined(cut(images, patch).transpose(0, 2, 4, 3, 5, 1), images, patch)


@FORWARD.mistake(
    "the pixels of a patch column by column", "Within a patch the numbers stand row by row: C, P, Q, not C, Q, P."
)
def patches_transposed(images, patch):
    return joined(cut(images, patch).transpose(0, 2, 4, 1, 5, 3), images, patch)


@FORWARD.mistake("height and width of a patch exchanged", "patch is (height, width), as H stands before W.")
def sides_exchanged(images, patch):
    patch = patch[::-1]
    return joined(cut(images, patch).transpose(0, 2, 4, 1, 3, 5), images, patch)


@BACKWARD.mistake(
    "reshape without transpose", RESHAPE + "split N and C·P·Q into their axes, transpose, and put axes together then."
)
def only_reshaped_backward(dy, patch, img_size):
    return dy.reshape(len(dy), -1, *img_size)


def split(dy, order, patch, img_size):
    """dy with N and C·P·Q split: `order` names the six axes as dy is taken to hold them."""
    sizes = {"b": len(dy), "r": img_size[0] // patch[0], "w": img_size[1] // patch[1], "p": patch[0], "q": patch[1]}
    sizes["c"] = dy.shape[2] // (patch[0] * patch[1])
    axes = dy.reshape([sizes[letter] for letter in order])
    return axes.transpose([order.index(letter) for letter in "bcrpwq"]).reshape(len(dy), sizes["c"], *img_size)


@BACKWARD.mistake("patches column by column", "The second patch lies to the right of the first, not below it.")
def column_by_column_backward(dy, patch, img_size):
    return split(dy, "bwrcpq", patch, img_size)


@BACKWARD.mistake(
    "channels last within a patch", "The order is C, P, Q, as in a convolution's weight; you take it for P, Q, C."
)
def channels_last_backward(dy, patch, img_size):
    return split(dy, "brwpqc", patch, img_size)


@BACKWARD.mistake(
    "the pixels of a patch column by column", "Within a patch the numbers stand row by row: C, P, Q, not C, Q, P."
)
def patches_transposed_backward(dy, patch, img_size):
    return split(dy, "brwcqp", patch, img_size)
