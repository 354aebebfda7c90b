"""Two images in one, by a rectangle."""

import numpy as np

from tinyvit.exercises.exercise import Case, exercise, lesson


def inputs(random, C, H, W, K):
    images, targets = random.standard_normal((2, C, H, W)), np.eye(K)[random.permutation(K)[:2]]
    box = 1, H // 2, 2, W - 1  # in whatever order it is read, no box is empty, and none is another one
    return images[0], targets[0], images[1], targets[1], box


def with_box(random, *box):
    return *inputs(random, 3, 7, 9, 5)[:-1], box


@exercise(
    inputs, ({"C": 3, "H": 12, "W": 10, "K": 5}, {"C": 1, "H": 8, "W": 13, "K": 4}),
    traps=(
        Case("a box that is the whole image", lambda random: with_box(random, 0, 7, 0, 9)),
        Case("a box of no rows", lambda random: with_box(random, 4, 4, 2, 6)),
    ),
)
def cutmix(image, target, partner, partner_target, box):
    """Paste a rectangle of a partner into an image, at the same place, and mix the targets by the shares of the pixels
    (Yun et al. 2019).

      image           (C, H, W)
      target          (K,), probabilities
      partner         (C, H, W)
      partner_target  (K,), probabilities
      box             (top, bottom, left, right): rows from top to bottom − 1, columns from left to right − 1

    returns
      mixed         (C, H, W)
      mixed_target  (K,)
    """
    top, bottom, left, right = box
    mixed = image.copy()
    mixed[:, top:bottom, left:right] = partner[:, top:bottom, left:right]
    share = (bottom - top) * (right - left) / image[0].size
    return mixed, (1 - share) * target + share * partner_target


lesson(cutmix, """
Hints:
  Which share of the pixels comes from the partner?
  mixed is the image with a rectangle of the partner; mixed_target a mean of both, weighted by shares.
  λ = (bottom − top)(right − left) / (H W) belongs to the partner: (1 − λ) t + λ t′.

Mistakes:
  nothing is pasted
    In the box the partner is seen.
    `partner[:` → `image[:`
  the targets are not mixed
    The target has to say how much of each image is seen.
    `(1 - share) * target + share * partner_target` → `target`
  the partner is outside of the box
    The partner goes inside the box, the image around it.
    `image.copy` → `partner.copy`
    `partner[:` → `image[:`
  the box is cut out
    Black pixels are cutout (DeVries & Taylor 2017); cutmix fills the box with the partner.
    `partner[:, top:bottom, left:right]` → `0`
  mixup
    Pixels are not blended: each comes from one of the two images.
    `return mixed` → `return (1 - share) * image + share * partner`
  rows and columns of the box exchanged
    The box is (top, bottom, left, right): first the rows, then the columns.
    `top, bottom, left, right = box` → `left, right, top, bottom = box`
  the box is taken for (top, left, bottom, right)
    It is (top, bottom, left, right), as for two slices.
    `top, bottom, left, right = box` → `top, left, bottom, right = box`
  the box is taken for (top, left, height, width)
    It is (top, bottom, left, right), as for two slices.
    `box = box[0], min(box[0] + box[2], image.shape[1]), box[1], min(box[1] + box[3], image.shape[2])`
  bottom and right belong to the box
    A slice ends before its second number, and so does the box.
    `box = np.add(box, (0, 1, 0, 1))`
  the targets' shares exchanged
    The box's share belongs to the partner, the rest to the image.
    `target, partner_target = partner_target, target`
  half of each target
    The shares are those of the pixels: the box over the whole image.
    `(bottom - top) * (right - left) / image[0].size` → `0.5`
  the box over all numbers of the image
    The share is the box's pixels over H · W: don't count the channels.
    `image[0].size` → `image.size`
  the square root of the shares
    The sides of the box scale with the square root of its share; the targets don't.
    `(bottom - top) * (right - left) / image[0].size` → `((bottom - top) * (right - left) / image[0].size) ** 0.5`
  the targets are added
    Weight them by the shares of the pixels, which add up to 1.
    `(1 - share) * target + share * partner_target` → `target + partner_target`
""")
