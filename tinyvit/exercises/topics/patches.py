"""Images into patches, and the gradient."""

from tinyvit.exercises.exercise import exercise


def inputs(random, B, C, P, Q, h, w):
    return random.standard_normal((B, C, h * P, w * Q)), (P, Q)


def backward_inputs(random, B, C, P, Q, h, w):
    return random.standard_normal((B, h * w, C * P * Q)), (P, Q), (h * P, w * Q)


# Images of h times w patches; those of the first case can be cut with P and Q exchanged as well.
SIZES = "B=3,4,1 C=5,8,1 P=4,3,1 Q=6,9,1 h=9,7,1 w=8,10,1"


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
