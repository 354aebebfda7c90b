"""Images into patches, and the gradient."""

from tinyvit.exercises.exercise import exercise, require_fit


def inputs(random, B, C, H, W, P, Q):
    return random.standard_normal((B, C, H, W)), (P, Q)


def backward_inputs(random, B, C, H, W, P, Q):
    require_fit(H % P == W % Q == 0)
    return random.standard_normal((B, H * W // (P * Q), C * P * Q)), (P, Q), (H, W)


SIZES = "B=2 C=3 H=6 W=12 P=2 Q=3", "B=1 C=2 H=4 W=4 P=4 Q=2"


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
