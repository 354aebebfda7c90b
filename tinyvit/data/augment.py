"""Random changes to images that don't change what they show, a whole batch at a time.

The random numbers, a few per image, are drawn on the host from a key of seed, epoch and place in the epoch; the pixels
are changed on the device, by array code that NumPy and CuPy share. Bytes on a GPU that become float32 take one kernel
for all changes, with the same bits. Nothing waits for a GPU. Each change with a picture in notebooks/augmentation.md.
"""

from dataclasses import dataclass
from functools import reduce
from typing import Annotated, Literal, NamedTuple

import numpy as np

from tinyvit.arrays import IGNORED, array_module, each_image
from tinyvit.data import geometry
from tinyvit.levels import Kernels
from tinyvit.validation import Count, NotNegative, Range, Share, validate

MAX_OPERATIONS = 100  # of RandAugment: each is a pass over the batch, and an image is grey long before


@dataclass(frozen=True)
class Augmentation:
    """Random changes to the training images."""

    crop: Count = 0
    """Pixels by which an image is shifted at most, in each direction."""
    flip: bool = False
    """Whether half of the images are mirrored left to right."""
    rotate: Annotated[float, Range(0, 180)] = 0.0
    """Degrees by which an image is turned at most, to either side."""
    policy: Literal["none", "trivial", "rand"] = "none"
    """Colour and geometry: TrivialAugment (one operation of any strength), or RandAugment (some of one strength)."""
    operations: Annotated[int, Range(1, MAX_OPERATIONS)] = 2
    """Operations that each image gets from RandAugment."""
    magnitude: Annotated[float, Range(0, 30)] = 9.0
    """Strength of RandAugment's operations, from 0 to 30."""
    erase: Share = 0.0
    """Probability that a rectangle of the image is erased."""
    mixup: NotNegative = 0.0
    """Mix pairs of images with a share from Beta(mixup, mixup); 0 doesn't."""
    cutmix: NotNegative = 0.0
    """Paste a rectangle of one image into another, with a share from Beta(cutmix, cutmix); 0 doesn't."""
    mix_prob: Share = 1.0
    """Share of the batches that are mixed, by mixup and cutmix in turn (by a coin) if both are on."""

    def __post_init__(self):
        validate(self, "augment.")


class Changes(NamedTuple):
    """The changes to each image of a batch, drawn on the host. None where nothing of a kind is done to any image."""

    matrices: np.ndarray | None    # (B, 3, 3)  where pixels are read, as in `geometry`
    choices: tuple | None          # `policy.Choices`
    rectangles: np.ndarray | None  # (B, 4)     where it is erased, as in `erasing`


def augment(images, labels, augmentation, dataset, key, dtype="float32", part=None):
    """A batch as the model sees it: images (B, C, H, W), or videos (B, C, T, H, W), normalised, and targets, labels
    (B,), those of pixels (B, H, W), or soft (B, K).

    images, labels   of `dataset`, which says how pixels are scaled and normalised; on any device
    key              of the run and the epoch, skipped to the first sample of the batch
    part             the slice of the samples that are wanted, with the bits that they have in the whole batch; None:
                     all. Computed are these alone and, where images are mixed, their partners

    Targets are soft if mixup or cutmix is on, also in batches that are not mixed. The changes to an image depend on the
    key and its place in the epoch only; its mixing partner, on the batch.
    """
    whole = slice(0, len(images))
    part = part or whole
    mixes = augmentation.mixup or augmentation.cutmix
    wanted = [part]
    if mixes and part != whole:
        wanted.append(slice(whole.stop - part.stop, whole.stop - part.start))
    found = [
        augment_each(images[where], labels[where], augmentation, dataset, key.skip(where.start), dtype)
        for where in wanted
    ]
    if not mixes:
        return found[0]
    # The first of these is as far from the start as its partner is from the end.
    images, labels = map(array_module(images).concatenate, zip(*found))
    count = part.stop - part.start
    images, targets = mix(images, labels, len(dataset.classes), augmentation, key)
    return images[:count], targets[:count]


def augment_each(images, labels, augmentation, dataset, key, dtype):
    """Images (B, C, H, W), or videos (B, C, T, H, W), changed each by itself and normalised, and their labels: those of
    pixels move with them, and what comes in from outside is ignored."""
    if images.dtype.kind == "O":  # of several sizes
        keys = map(key.skip, range(len(images)))
        changed = each_image(
            lambda image: augment_each(image, labels, augmentation, dataset, next(keys), dtype)[0], images
        )
        return changed, labels
    changes = draw_changes(augmentation, key, len(images), *images.shape[-2:])
    kernel = CHANGED.find(images) if dtype == "float32" else None
    if labels.ndim > 1 and changes.matrices is not None:
        labels = geometry.resample(labels[:, None], changes.matrices, IGNORED)[:, 0]
    return (kernel or apply_changes)(images, changes, dataset, dtype), labels


def draw_changes(augmentation, key, B, H, W):
    """The `Changes` to B images of H×W pixels."""
    moves, choices, erased = [], None, None
    if augmentation.crop:
        moves.append(geometry.crop(key.at("crop").uniform((B, 2)), augmentation.crop))
    if augmentation.flip:
        moves.append(geometry.flip(key.at("flip").uniform((B,))))
    if augmentation.rotate:
        degrees = augmentation.rotate * (2 * key.at("rotate").uniform((B,)).astype("float64") - 1)
        moves.append(geometry.rotate(degrees))
    if augmentation.policy != "none":
        from tinyvit.data.policy import matrices, rand, trivial

        chosen = augmentation.operations, augmentation.magnitude
        choices = trivial(B, key) if augmentation.policy == "trivial" else rand(B, key, *chosen)
        moves.append(matrices(choices, H, W))
    if augmentation.erase:
        from tinyvit.data.erasing import rectangles

        erased = rectangles(key.at("erase").uniform((B, 5)), augmentation.erase, H, W)
    return Changes(reduce(np.matmul, moves) if moves else None, choices, erased)


def apply_changes(images, changes, dataset, dtype):
    """Images (B, C, H, W), or videos (B, C, T, H, W), of a `Dataset` after the `Changes`, normalised."""
    shape, images = images.shape, as_planes(images)
    if changes.matrices is not None:
        images = geometry.resample(images, changes.matrices)
    if changes.choices is not None:
        from tinyvit.data.policy import recolour

        real = images.dtype if images.dtype.kind == "f" else "float32"
        images = recolour(images.astype(real), changes.choices, dataset.scale)
    images = dataset.normalise(images.reshape(shape), dtype)
    if changes.rectangles is not None:
        from tinyvit.data.erasing import erase

        images = erase(as_planes(images), changes.rectangles).reshape(shape)
    return images


def as_planes(images):
    """Images (B, C, H, W) as they are; videos (B, C, T, H, W) as images with C·T channels: what is done to a video is
    done to all of its frames alike."""
    return images.reshape(len(images), -1, *images.shape[-2:])


def mix(images, labels, K, augmentation, key):
    """Mixup or cutmix of a whole batch, or neither: images, and targets (B, K) from the labels (B,)."""
    from tinyvit.data.mixing import cutmix, mixup, one_hot, random_box

    targets = one_hot(labels, K, images.dtype)
    # The key is the first sample's: one draw per batch, and the same one when the epoch is resumed here.
    generator = key.at(f"mix.{key.sample}").generator()
    chance, by_cutmix = generator.random(2)
    if chance >= augmentation.mix_prob:
        return images, targets
    if augmentation.cutmix and (not augmentation.mixup or by_cutmix < 0.5):
        share = generator.beta(augmentation.cutmix, augmentation.cutmix)
        return cutmix(images, targets, random_box(generator, share, *images.shape[-2:]))
    return mixup(images, targets, generator.beta(augmentation.mixup, augmentation.mixup))


CHANGED = Kernels()  # of `changed`, for images as they are stored
