"""Random changes to images that don't change what they show, a whole batch at a time.

The random numbers, a few per image, are drawn on the host from a key of seed, epoch and place in the epoch; the pixels
are changed on the device, by array code that NumPy and CuPy share and that waits for no GPU. Each with a picture in
notebooks/augmentation.md.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from tinyvit.backend import array_module
from tinyvit.data import geometry, policy
from tinyvit.data.erasing import erase, rectangles
from tinyvit.data.mixing import cutmix, mixup, one_hot, random_box
from tinyvit.validation import Count, NotNegative, Share, Within, validate

MOST_OPERATIONS = 100  # of RandAugment: each is a pass over the batch, and an image is grey long before
Strength = Annotated[float, Within(0, policy.STRENGTHS)]


@dataclass(frozen=True)
class Augmentation:
    """Random changes to the training images."""

    crop: Count = 0
    """Pixels by which an image is shifted at most, in each direction."""
    flip: bool = False
    """Whether half of the images are mirrored left to right."""
    policy: Literal["none", "trivial", "rand"] = "none"
    """Colour and geometry: TrivialAugment (one operation of any strength), or RandAugment (some of one strength)."""
    operations: Annotated[int, Within(1, MOST_OPERATIONS)] = 2
    """Operations that each image gets from RandAugment."""
    magnitude: Strength = 9.0
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


def augment(images, labels, augmentation, dataset, key, dtype="float32"):
    """A batch as the model sees it: images (B, C, H, W), or videos (B, C, T, H, W), normalised, and targets, labels
    (B,) or soft (B, K).

    images, labels   of `dataset`, which says how pixels are scaled and normalised; on any device
    key              of the run and the epoch, skipped to the first sample of the batch

    Targets are soft if mixup or cutmix is on, also in batches that are not mixed. The changes to an image depend on the
    key and its place in the epoch only; its mixing partner, on the batch.
    """
    images = apart(images, augmentation, dataset, key, dtype)
    if mixes(augmentation):
        return mix(images, one_hot(labels, len(dataset.classes), dtype), augmentation, key)
    return images, labels


def augment_part(images, labels, part, augmentation, dataset, key, dtype="float32"):
    """The samples `part`, a slice, of the batch that `augment` returns of all of them, bit for bit.

    Computed are these alone and, where images are mixed, their partners: as many, counted from the batch's end.
    """
    def of(where):
        return apart(images[where], augmentation, dataset, key.skip(where.start), dtype)

    if not mixes(augmentation):
        return of(part), labels[part]
    partners = slice(len(images) - part.stop, len(images) - part.start)
    # The first of these is then as far from the start as its partner is from the end.
    xp = array_module(images)
    targets = one_hot(xp.concatenate([labels[part], labels[partners]]), len(dataset.classes), dtype)
    found, targets = mix(xp.concatenate([of(part), of(partners)]), targets, augmentation, key)
    return found[: part.stop - part.start], targets[: part.stop - part.start]


def mixes(augmentation):
    """Whether an image may be mixed with another one of its batch."""
    return bool(augmentation.mixup or augmentation.cutmix)


def apart(images, augmentation, dataset, key, dtype):
    """Images (B, C, H, W), or videos (B, C, T, H, W), changed each by itself and normalised."""
    shape = images.shape
    images = change(as_planes(images), augmentation, dataset.scale, key).reshape(shape)
    images = dataset.normalise(images, dtype)
    if augmentation.erase:
        uniform = key.at("erase").uniform((len(images), 5))
        images = erase(as_planes(images), rectangles(uniform, augmentation.erase, *shape[-2:])).reshape(shape)
    return images


def as_planes(images):
    """Images (B, C, H, W) as they are; videos (B, C, T, H, W) as images with C·T channels: what is done to a video is
    done to all of its frames alike."""
    return images.reshape(len(images), -1, *images.shape[-2:])


def change(images, augmentation, scale, key):
    """Crop, flip and policy: images (B, C, H, W), pixels from 0 to `scale`."""
    B, _, H, W = images.shape
    matrices = geometry.matrices(B)
    if augmentation.crop:
        matrices = matrices @ geometry.crop(key.at("crop").uniform((B, 2)), augmentation.crop)
    if augmentation.flip:
        matrices = matrices @ geometry.flip(key.at("flip").uniform((B,)))
    if augmentation.policy == "none":
        return geometry.resample(images, matrices) if augmentation.crop or augmentation.flip else images
    if augmentation.policy == "trivial":
        choices = policy.trivial(B, key)
    else:
        choices = policy.rand(B, key, augmentation.operations, augmentation.magnitude)
    images = geometry.resample(images, matrices @ policy.matrices(choices, H, W))
    real = images.dtype if images.dtype.kind == "f" else "float32"
    return policy.recolour(images.astype(real), choices, scale)


def mix(images, targets, augmentation, key):
    """Mixup or cutmix of a whole batch, or neither."""
    # The key is the first sample's: one draw per batch, and the same one when the epoch is resumed here.
    generator = key.at(f"mix.{key.sample}").generator()
    mixed, by_cutmix = generator.random(2)
    if mixed >= augmentation.mix_prob:
        return images, targets
    if augmentation.cutmix and (not augmentation.mixup or by_cutmix < 0.5):
        share = generator.beta(augmentation.cutmix, augmentation.cutmix)
        return cutmix(images, targets, random_box(generator, share, *images.shape[-2:]))
    return mixup(images, targets, generator.beta(augmentation.mixup, augmentation.mixup))
