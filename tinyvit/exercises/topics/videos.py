"""Videos cut into tubelets, and the filters of images made into filters of videos."""

import numpy as np

from tinyvit.exercises.exercise import exercise, normal


def video_inputs(random, B, C, t, h, w, s, p, q):
    return random.standard_normal((B, C, t * s, h * p, w * q)), (s, p, q)


def tubelet_inputs(random, B, C, t, h, w, s, p, q):
    return random.standard_normal((B, t * h * w, C * s * p * q)), (s, p, q), (t * s, h * p, w * q)


SIZES = "B=1,4 C=3,1 t=4,3,1 h=5,7 w=6,5,1 s=7,6,1 p=8,9 q=9,8,1"


@exercise(video_inputs, SIZES, "")
def tubelets(videos, tubelet):
    """Videos cut into tubelets: those of the first S frames first, row by row; a tubelet's numbers in the order
    channel, frame, row, column.

      videos   (B, C, T, H, W)
      tubelet  (S, P, Q), frames, height and width of a tubelet

    returns
      tubelets  (B, T/S · H/P · W/Q, C · S · P · Q)
    """
    (B, C, T, H, W), (S, P, Q) = videos.shape, tubelet
    cut = videos.reshape(B, C, T // S, S, H // P, P, W // Q, Q)
    cut = cut.transpose(0, 2, 4, 6, 1, 3, 5, 7)                                # (B, t, h, w, C, S, P, Q)
    return cut.reshape(B, (T // S) * (H // P) * (W // Q), C * S * P * Q)


@exercise(tubelet_inputs, SIZES, "")
def from_tubelets(tubelets, tubelet, size):
    """Tubelets put together to videos again: the inverse of tubelets, and so its backward, too.

      tubelets  (B, N, C · S · P · Q)
      tubelet   (S, P, Q), frames, height and width of a tubelet
      size      (T, H, W) of the videos

    returns
      videos  (B, C, T, H, W)
    """
    (T, H, W), (S, P, Q) = size, tubelet
    x = tubelets.reshape(len(tubelets), T // S, H // P, W // Q, -1, S, P, Q)
    x = x.transpose(0, 4, 1, 5, 2, 6, 3, 7)                                    # (B, C, t, S, h, P, w, Q)
    return x.reshape(len(tubelets), -1, T, H, W)


@exercise(normal("DCPP", numbers="S"), "D C P S=7,10,2,1")
def inflate(weight, frames):
    """The filters of images as filters of tubelets of S frames: the frame in the middle, number S // 2 counted from 0,
    has the image's filter, and the others are zero.

      weight  (D, C, P, P)
      frames  S

    returns
      inflated  (D, C, S, P, P)
    """
    D, C, P, Q = weight.shape
    inflated = np.zeros((D, C, frames, P, Q))
    inflated[:, :, frames // 2] = weight
    return inflated
