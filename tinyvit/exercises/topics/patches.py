"""Images into patches, and the gradient."""

from tinyvit.exercises.exercise import exercise, lesson, require_fit


def inputs(random, B, C, H, W, P, Q):
    return random.standard_normal((B, C, H, W)), (P, Q)


def backward_inputs(random, B, C, H, W, P, Q):
    require_fit(H % P == W % Q == 0)
    return random.standard_normal((B, H * W // (P * Q), C * P * Q)), (P, Q), (H, W)


SIZES = {"B": 2, "C": 3, "H": 6, "W": 12, "P": 2, "Q": 3}, {"B": 1, "C": 2, "H": 4, "W": 4, "P": 4, "Q": 2}


@exercise(inputs, SIZES)
def patchify(images, patch):
    """Cut images into patches, row by row from the top left. The numbers of a patch stand in the order C, P, Q.

      images  (B, C, H, W)
      patch   (P, Q), a patch's height and width

    returns
      patches  (B, N, C·P·Q), where N = H/P · W/Q
    """
    (B, C, H, W), (P, Q) = images.shape, patch
    cut = images.reshape(B, C, H // P, P, W // Q, Q)
    return cut.transpose(0, 2, 4, 1, 3, 5).reshape(B, -1, C * P * Q)           # (B, rows, columns, C, P, Q)


lesson(patchify, """
Package: tinyvit.functional.patches.patchify

Hints:
  An image has rows and columns of pixels, and both are cut in two. How many axes has it then?
  (B, C, H, W) → reshape to six axes → transpose → reshape to (B, N, C·P·Q).
  The six axes are (B, C, H/P, P, W/Q, Q). They have to become (B, H/P, W/Q, C, P, Q) before the last reshape.

Mistakes:
  reshape without transpose
    A reshape never moves a number. The rows of a patch are W numbers apart in the image: split H and W in two axes
    each, transpose, and only then put axes together.
    `cut.transpose(0, 2, 4, 1, 3, 5)` → `images`
  axes put together before they are transposed
    A reshape never moves a number. The rows of a patch are W numbers apart in the image: H and W were split in two
    axes each; now bring rows and columns of patches to the front.
    `0, 2, 4, 1, 3, 5` → `0, 2, 1, 3, 4, 5`
  patches column by column
    The second patch lies to the right of the first, not below it.
    `0, 2, 4, 1, 3, 5` → `0, 4, 2, 1, 3, 5`
  channels last within a patch
    The order is C, P, Q, as in a convolution's weight; yours is P, Q, C.
    `0, 2, 4, 1, 3, 5` → `0, 2, 4, 3, 5, 1`
  the pixels of a patch column by column
    Within a patch the numbers stand row by row: C, P, Q, not C, Q, P.
    `0, 2, 4, 1, 3, 5` → `0, 2, 4, 1, 5, 3`
  height and width of a patch exchanged
    patch is (height, width), as H stands before W.
    `patch = patch[::-1]`
""")


@exercise(backward_inputs, SIZES)
def patchify_backward(dy, patch, img_size):
    """The gradient of cutting images into patches: every number goes back to the pixel that it came from.

      dy        (B, N, C·P·Q), the gradient of the patches
      patch     (P, Q), a patch's height and width
      img_size  (H, W) of the images

    returns
      dimages  (B, C, H, W)
    """
    (P, Q), (H, W) = patch, img_size
    C = dy.shape[2] // (P * Q)
    cut = dy.reshape(len(dy), H // P, W // Q, C, P, Q)
    return cut.transpose(0, 3, 1, 4, 2, 5).reshape(-1, C, H, W)


lesson(patchify_backward, """
Package: tinyvit.functional.patches.patchify_backward, tinyvit.functional.patches.unpatchify

Hints:
  Nothing was added or multiplied on the way forward. What can the gradient be, other than moved numbers?
  The reshapes and the transpose of the forward, undone in the opposite order.
  From (B, H/P, W/Q, C, P, Q) back to (B, C, H/P, P, W/Q, Q): which transpose is the inverse of the forward's?

Mistakes:
  reshape without transpose
    A reshape never moves a number. The rows of a patch are W numbers apart in the image: split N and C·P·Q into their
    axes, transpose, and put axes together then.
    `cut.transpose(0, 3, 1, 4, 2, 5)` → `cut`
  patches column by column
    The second patch lies to the right of the first, not below it.
    `H // P, W // Q` → `W // Q, H // P`
    `0, 3, 1, 4, 2, 5` → `0, 3, 2, 4, 1, 5`
  channels last within a patch
    The order is C, P, Q, as in a convolution's weight; you take it for P, Q, C.
    `C, P, Q)` → `P, Q, C)`
    `0, 3, 1, 4, 2, 5` → `0, 5, 1, 3, 2, 4`
  the pixels of a patch column by column
    Within a patch the numbers stand row by row: C, P, Q, not C, Q, P.
    `C, P, Q)` → `C, Q, P)`
    `0, 3, 1, 4, 2, 5` → `0, 3, 1, 5, 2, 4`
""")
