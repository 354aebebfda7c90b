"""Two images in one: by a rectangle, and the loss of a blend."""

import numpy as np

from tinyvit.exercises.domain import Case
from tinyvit.exercises.exercise import exercise, number_between, require_fit
from tinyvit.exercises.topics.cross_entropy import cross_entropy


def inputs(random, C, K, H, W):
    require_fit(min(H, W) > 4 and K > 1)
    images, targets = random.standard_normal((2, C, H, W)), np.eye(K)[random.permutation(K)[:2]]
    box = 1, H // 2, 2, W - 1  # in whatever order it is read, no box is empty, and none is another one
    return images[0], targets[0], images[1], targets[1], box


def mixup_inputs(random, B, K):
    logits = 2 * random.standard_normal((B, K))
    labels = random.permutation(np.arange(B) % K)
    partners = random.permutation(labels)
    return logits, labels, partners, number_between(random, 0.1, 0.4)


def with_box(random, *box):
    return *inputs(random, 3, 5, 7, 9)[:-1], box


@exercise(
    inputs, "C K H=12,8 W=10,13",
    extra=(
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


@exercise(mixup_inputs, "K B share:0,1")
def mixup_loss(logits, labels, partner_labels, share):
    """The loss of images that mixup has blended (Zhang et al. 2018): λ times the cross-entropy with their own labels,
    plus 1 − λ times that with their partners'.

      logits          (B, K), of the blended images
      labels          (B,), ints from 0 to K − 1
      partner_labels  (B,), ints from 0 to K − 1
      share           λ, the share of the image itself

    returns
      loss  a number
    """
    own = cross_entropy(logits, labels, 0.0)
    partners = cross_entropy(logits, partner_labels, 0.0)
    return share * own + (1 - share) * partners
