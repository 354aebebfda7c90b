"""Two images in one, by a rectangle."""

import numpy as np

from tinyvit.exercises.exercise import Case, Exercise


def inputs(random, C, H, W, K):
    images, targets = random.random((2, C, H, W)), np.eye(K)[random.permutation(K)[:2]]
    box = 1, H // 2, 2, W - 1  # in whatever order it is read, no box is empty, and none is another one
    return images[0], targets[0], images[1], targets[1], box


def whole(random):
    *others, _ = inputs(random, 3, 7, 9, 5)
    return *others, (0, 7, 0, 9)


def nothing(random):
    *others, _ = inputs(random, 3, 7, 9, 5)
    return *others, (4, 4, 2, 6)


def cutmix(image, target, partner, partner_target, box):
    top, bottom, left, right = box
    share = 1 - (bottom - top) * (right - left) / (image.shape[1] * image.shape[2])
    mixed = image.copy()
    mixed[:, top:bottom, left:right] = partner[:, top:bottom, left:right]
    return mixed, share * target + (1 - share) * partner_target


CUTMIX = Exercise(
    "cutmix",
    "Paste a rectangle of a partner into an image, at the same place, and mix the targets by the shares of the pixels "
    "(Yun et al. 2019). Return new arrays, and don't change the given ones.",
    {
        "image": "(C, H, W)",
        "target": "(K,), probabilities",
        "partner": "(C, H, W)",
        "partner_target": "(K,), probabilities",
        "box": "(top, bottom, left, right): rows from top to bottom − 1, columns from left to right − 1",
    },
    {"mixed": "(C, H, W)", "mixed_target": "(K,)"},
    right=cutmix,
    shown=(cutmix,),
    inputs=inputs,
    sizes=({"C": 3, "H": 12, "W": 10, "K": 5}, {"C": 1, "H": 8, "W": 13, "K": 4}),
    traps=(Case("a box that is the whole image", whole), Case("a box of no rows", nothing)),
)
EXERCISES = (CUTMIX,)


def pasted(image, partner, rows, columns):
    mixed = image.copy()
    mixed[:, rows, columns] = partner[:, rows, columns]
    return mixed


def blended(target, partner_target, share):
    return share * target + (1 - share) * partner_target


def area(box):
    top, bottom, left, right = box
    return (bottom - top) * (right - left)


@CUTMIX.mistake("nothing is pasted", "In the box the partner is seen.")
def not_pasted(image, target, partner, partner_target, box):
    return {"mixed": image}


@CUTMIX.mistake("the targets are not mixed", "The target has to say how much of each image is seen.")
def target_kept(image, target, partner, partner_target, box):
    return {"mixed_target": target}


@CUTMIX.mistake("the partner is outside of the box", "The partner goes inside the box, the image around it.")
def outside(image, target, partner, partner_target, box):
    top, bottom, left, right = box
    return {"mixed": pasted(partner, image, slice(top, bottom), slice(left, right))}


@CUTMIX.mistake(
    "the box is cut out", "Black pixels are cutout (DeVries & Taylor 2017); cutmix fills the box with the partner."
)
def cut_out(image, target, partner, partner_target, box):
    return {"mixed": cutmix(image, target, 0 * partner, target, box)[0]}


@CUTMIX.mistake("mixup", "Pixels are not blended: each comes from one of the two images.")
def mixup(image, target, partner, partner_target, box):
    share = 1 - area(box) / image[0].size
    return {"mixed": share * image + (1 - share) * partner}


@CUTMIX.misreading(
    "rows and columns of the box exchanged", "The box is (top, bottom, left, right): first the rows, then the columns.",
    outputs=("mixed",),
)  # fmt: skip
def exchanged(image, target, partner, partner_target, box):
    return image, target, partner, partner_target, (*box[2:], *box[:2])


@CUTMIX.misreading(
    "the box is taken for (top, left, bottom, right)", "It is (top, bottom, left, right), as for two slices."
)
def corners(image, target, partner, partner_target, box):
    top, left, bottom, right = box
    return image, target, partner, partner_target, (top, bottom, left, right)


@CUTMIX.misreading(
    "the box is taken for (top, left, height, width)", "It is (top, bottom, left, right), as for two slices."
)
def with_sides(image, target, partner, partner_target, box):
    top, left, height, width = box
    H, W = image.shape[1:]
    return image, target, partner, partner_target, (top, min(top + height, H), left, min(left + width, W))


@CUTMIX.misreading(
    "bottom and right belong to the box", "A slice ends before its second number, and so does the box.",
)  # fmt: skip
def with_its_ends(image, target, partner, partner_target, box):
    top, bottom, left, right = box
    return image, target, partner, partner_target, (top, bottom + 1, left, right + 1)


@CUTMIX.misreading(
    "the targets' shares exchanged", "The box's share belongs to the partner, the rest to the image.",
    outputs=("mixed_target",),
)  # fmt: skip
def shares_exchanged(image, target, partner, partner_target, box):
    return image, partner_target, partner, target, box


@CUTMIX.mistake("half of each target", "The shares are those of the pixels: the box over the whole image.")
def halves(image, target, partner, partner_target, box):
    return {"mixed_target": blended(target, partner_target, 0.5)}


@CUTMIX.mistake(
    "the box over all numbers of the image", "The share is the box's pixels over H · W: don't count the channels."
)
def over_channels(image, target, partner, partner_target, box):
    return {"mixed_target": blended(target, partner_target, 1 - area(box) / image.size)}


@CUTMIX.mistake(
    "the square root of the shares", "The sides of the box scale with the square root of its share; the targets don't."
)
def by_side(image, target, partner, partner_target, box):
    return {"mixed_target": blended(target, partner_target, 1 - (area(box) / image[0].size) ** 0.5)}


@CUTMIX.mistake("the targets are added", "Weight them by the shares of the pixels, which add up to 1.")
def targets_added(image, target, partner, partner_target, box):
    return {"mixed_target": target + partner_target}
