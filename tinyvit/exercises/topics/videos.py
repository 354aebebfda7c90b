"""Videos cut into tubelets, and the filters of images made into filters of videos."""

import numpy as np

from tinyvit.exercises.exercise import exercise, lesson


def video_inputs(random, B, C, t, h, w, s, p, q):
    return random.standard_normal((B, C, t * s, h * p, w * q)), (s, p, q)


def tubelet_inputs(random, B, C, t, h, w, s, p, q):
    return random.standard_normal((B, t * h * w, C * s * p * q)), (s, p, q), (t * s, h * p, w * q)


def filter_inputs(random, D, C, P, S):
    return random.standard_normal((D, C, P, P)), S


SIZES = (
    {"B": 2, "C": 3, "t": 2, "h": 3, "w": 4, "s": 2, "p": 3, "q": 2},
    {"B": 1, "C": 1, "t": 3, "h": 2, "w": 2, "s": 1, "p": 2, "q": 3},
)


@exercise(video_inputs, SIZES)
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


lesson(tubelets, """
Package: tinyvit.functional.tubelets.tubelets

Hints:
  Which numbers are in the first tubelet? What is the shape with an axis for frames within a tubelet?
  Reshape to (B, C, t, S, h, P, w, Q), then bring the three axes of the grid in front of a tubelet's own.
  Axes in the order (B, t, h, w, C, S, P, Q): transpose(0, 2, 4, 6, 1, 3, 5, 7). Three and four are joined.

Mistakes:
  reshaped without a transpose
    After the reshape to (B, C, t, S, h, P, w, Q) the axes of the grid, t, h and w, must come in front of the others.
    `.transpose(0, 2, 4, 6, 1, 3, 5, 7)` → ``
  the channels stand last in a tubelet
    A tubelet's numbers begin with the channel: C, S, P, Q.
    `0, 2, 4, 6, 1, 3, 5, 7` → `0, 2, 4, 6, 3, 5, 7, 1`
  the frames stand before the channels
    A tubelet's numbers begin with the channel: C, S, P, Q.
    `0, 2, 4, 6, 1, 3, 5, 7` → `0, 2, 4, 6, 3, 1, 5, 7`
  the tubelets are counted place by place
    All tubelets of the first S frames come before those of the next.
    `0, 2, 4, 6, 1, 3, 5, 7` → `0, 4, 6, 2, 1, 3, 5, 7`
  the tubelets are counted column by column
    Those of the same frames follow each other row by row.
    `0, 2, 4, 6, 1, 3, 5, 7` → `0, 2, 6, 4, 1, 3, 5, 7`
""")


@exercise(tubelet_inputs, SIZES)
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


lesson(from_tubelets, """
Package: tinyvit.functional.tubelets.from_tubelets

Hints:
  What undoes a reshape and a transpose? In which order?
  Reshape to (B, t, h, w, C, S, P, Q), bring C to the front and each axis of a tubelet behind its axis of the grid,
      join.
  transpose(0, 4, 1, 5, 2, 6, 3, 7) gives (B, C, t, S, h, P, w, Q), joined to (B, C, T, H, W).

Mistakes:
  reshaped without a transpose
    The axes (t, h, w, C, S, P, Q) must become (C, t, S, h, P, w, Q) before they are joined.
    `.transpose(0, 4, 1, 5, 2, 6, 3, 7)` → ``
  frames and channels are exchanged
    A tubelet's numbers begin with the channel: C, S, P, Q.
    `-1, S, P, Q` → `S, -1, P, Q`
    `0, 4, 1, 5, 2, 6, 3, 7` → `0, 5, 1, 4, 2, 6, 3, 7`
  a tubelet's frames lie apart
    The S frames of a tubelet follow one another: (t, S), not (S, t), becomes T.
    `0, 4, 1, 5, 2, 6, 3, 7` → `0, 4, 5, 1, 2, 6, 3, 7`
  the tubelets are counted column by column
    Those of the same frames follow each other row by row.
    `H // P, W // Q` → `W // Q, H // P`
    `0, 4, 1, 5, 2, 6, 3, 7` → `0, 4, 1, 5, 3, 6, 2, 7`
""")


@exercise(
    filter_inputs,
    ({"D": 3, "C": 2, "P": 2, "S": 4}, {"D": 2, "C": 1, "P": 3, "S": 3}, {"D": 2, "C": 3, "P": 2, "S": 2}),
)
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


lesson(inflate, """
Package: tinyvit.models.vivit.inflate_filters

Hints:
  What should the filter give of a clip whose frames are all alike?
  An array of zeros with an axis for the frames, in which one frame is set.
  Frame number S // 2 of the new filter is the old one; everything else stays zero.

Mistakes:
  every frame has the filter
    Of a still clip that gives S times what the image gives.
    `frames // 2] = weight` → `:] = weight[:, :, None]`
  the mean over the frames
    That is the other way to inflate; here the frame in the middle has the filter.
    `frames // 2] = weight` → `:] = weight[:, :, None] / frames`
  the first frame has the filter
    The frame in the middle is number S // 2.
    `frames // 2` → `0`
  the last frame has the filter
    The frame in the middle is number S // 2.
    `frames // 2` → `-1`
  rounded down for an even S
    Counted from 0, S // 2 is the second of the two in the middle.
    `frames // 2` → `(frames - 1) // 2`
""")
