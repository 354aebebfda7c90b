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

RESHAPE = "A reshape never moves a number. The rows of a patch are W numbers apart in the image: "
COLUMNS = "patches column by column", "The second patch lies to the right of the first, not below it."
PIXELS = "the pixels of a patch column by column", "Within a patch the numbers stand row by row: C, P, Q, not C, Q, P."
AXES, BACK = "0, 2, 4, 1, 3, 5", "0, 3, 1, 4, 2, 5"

FORWARD.edit("reshape without transpose",
    RESHAPE + "split H and W in two axes each, transpose, and only then put axes together.",
    (f"cut.transpose({AXES})", "images"))
FORWARD.edit("axes put together before they are transposed",
    RESHAPE + "H and W were split in two axes each; now bring rows and columns of patches to the front.",
    (AXES, "0, 2, 1, 3, 4, 5"))
FORWARD.edit(*COLUMNS, (AXES, "0, 4, 2, 1, 3, 5"))
FORWARD.edit("channels last within a patch", "The order is C, P, Q, as in a convolution's weight; yours is P, Q, C.",
    (AXES, "0, 2, 4, 3, 5, 1"))
FORWARD.edit(*PIXELS, (AXES, "0, 2, 4, 1, 5, 3"))
FORWARD.edit("height and width of a patch exchanged", "patch is (height, width), as H stands before W.",
    "patch = patch[::-1]")

BACKWARD.edit("reshape without transpose",
    RESHAPE + "split N and C·P·Q into their axes, transpose, and put axes together then.",
    (f"cut.transpose({BACK})", "cut"))
BACKWARD.edit(*COLUMNS, ("H // P, W // Q", "W // Q, H // P"), (BACK, "0, 3, 2, 4, 1, 5"))
BACKWARD.edit("channels last within a patch", "The order is C, P, Q, as in a convolution's weight; you take it for P, "
    "Q, C.", ("C, P, Q)", "P, Q, C)"), (BACK, "0, 5, 1, 3, 2, 4"))
BACKWARD.edit(*PIXELS, ("C, P, Q)", "C, Q, P)"), (BACK, "0, 3, 1, 5, 2, 4"))
