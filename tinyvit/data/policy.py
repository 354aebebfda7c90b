"""One or a few operations out of fourteen for each image: TrivialAugment and RandAugment.

                                            TrivialAugment ("wide")   RandAugment, magnitude 30
    identity                                -                         -
    autocontrast, equalize                  always in full            always in full
    brightness, contrast, saturation,
    sharpness                               factor 1 ± 0.99           1 ± 0.9
    posterize                               8 to 2 bits               8 to 4 bits
    solarize                                threshold 256 to 0        256 to 0
    rotate                                  ± 135°                    ± 30°
    shear_x, shear_y                        slope ± 0.99              ± 0.3
    translate_x, translate_y                ± the side                ± 0.45 of the side

TrivialAugment is Müller & Hutter 2021: one operation, with a strength out of {0, 1, …, 30}/30, all equally likely, and
either sign (their factors run from 0.01 to 2, ours from 0.01 to 1.99; their shift, of 32 pixels, is CIFAR's side).
RandAugment is Cubuk et al. 2020: several operations, drawn independently, all of one strength; ranges as in
torchvision, whose factors, unlike the paper's, lie on both sides of 1 (the shift is AutoAugment's, 150 of 331 pixels).

Unlike both, turns and shears are about the middle of the image, and all geometric operations of an image
come before its colour operations, so that the pixels are moved once. Strength 0 changes nothing. A grey image has no
saturation to change.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tinyvit.arrays import array_module
from tinyvit.data import colour, geometry

STRENGTHS = 30  # steps from nothing to the full range


class Operation(NamedTuple):
    function: Callable   # colour: (levels, amount (B,)) -> levels; geometry: (amount (B,), H, W) -> matrices
    trivial: float       # the amount at full strength, for each policy
    rand: float
    signed: bool = True


COLOUR = {
    "autocontrast": Operation(lambda images, amount: colour.autocontrast(images), 0, 0),
    "equalize": Operation(lambda images, amount: colour.equalize(images), 0, 0),
    "brightness": Operation(lambda images, amount: colour.brightness(images, 1 + amount), 0.99, 0.9),
    "contrast": Operation(lambda images, amount: colour.contrast(images, 1 + amount), 0.99, 0.9),
    "saturation": Operation(lambda images, amount: colour.saturation(images, 1 + amount), 0.99, 0.9),
    "sharpness": Operation(lambda images, amount: colour.sharpness(images, 1 + amount), 0.99, 0.9),
    "posterize": Operation(lambda images, amount: colour.posterize(images, 8 - to_int(amount)), 6, 4, signed=False),
    "solarize": Operation(lambda images, amount: colour.solarize(images, 256 - amount), 256, 256, signed=False),
}
GEOMETRY = {
    "rotate": Operation(lambda amount, H, W: geometry.rotate(amount), 135, 30),
    "shear_x": Operation(lambda amount, H, W: geometry.shear_x(amount), 0.99, 0.3),
    "shear_y": Operation(lambda amount, H, W: geometry.shear_y(amount), 0.99, 0.3),
    "translate_x": Operation(lambda amount, H, W: geometry.translate(amount[:, None] * (0, W)), 1, 0.45),
    "translate_y": Operation(lambda amount, H, W: geometry.translate(amount[:, None] * (H, 0)), 1, 0.45),
}
OPERATIONS = ("identity", *COLOUR, *GEOMETRY)


class Choices(NamedTuple):
    """The operations on each image, in order; on the host, so that images are grouped without waiting for a GPU."""

    operation: np.ndarray  # (B, n)  indices into OPERATIONS
    amount: np.ndarray     # (B, n)


def trivial(B, key):
    """Choices of TrivialAugment for B images."""
    uniform = key.at("policy").uniform((B, 1, 3))
    return choices(uniform, np.floor(uniform[..., 2] * (STRENGTHS + 1)) / STRENGTHS, "trivial")


def rand(B, key, operations, magnitude):
    """Choices of RandAugment for B images: N = `operations` of strength M = `magnitude` out of 30."""
    return choices(key.at("policy").uniform((B, operations, 2)), magnitude / STRENGTHS, "rand")


def choices(uniform, strength, policy):
    """Operations and signs by the numbers in uniform (B, n, 2 or more)."""
    operation = (uniform[..., 0] * len(OPERATIONS)).astype("int64")
    specs = list((COLOUR | GEOMETRY).values())
    full = np.array([0.0] + [getattr(spec, policy) for spec in specs])[operation]
    signed = np.array([False] + [spec.signed for spec in specs])[operation]
    return Choices(operation, strength * np.where(signed & (uniform[..., 1] < 0.5), -1, 1) * full)


def matrices(choices, H, W):
    """The geometric operations of each image, one after the other, as one matrix (B, 3, 3)."""
    B, n = choices.operation.shape
    result = geometry.matrices(B)
    for i in range(n):
        for name, spec in GEOMETRY.items():
            rows = np.flatnonzero(choices.operation[:, i] == OPERATIONS.index(name))
            result[rows] = result[rows] @ spec.function(choices.amount[rows, i], H, W)
    return result


def recolour(images, choices, scale):
    """The colour operations of each image, one after the other; changes `images`, real pixels from 0 to `scale`.

    Amounts are float32 whatever the pixels are, so that a threshold lies on the same side of a level for all of them.
    """
    xp = array_module(images)
    amount = choices.amount.astype("float32")
    for i in range(choices.operation.shape[1]):
        groups = [np.flatnonzero(choices.operation[:, i] == OPERATIONS.index(name)) for name in COLOUR]
        order = np.concatenate(groups)
        rows, amounts = xp.asarray(order), xp.asarray(amount[order, i].astype(images.dtype))  # one upload each
        stops = np.cumsum([len(group) for group in groups]).tolist()
        for spec, start, stop in zip(COLOUR.values(), [0, *stops], stops):
            if start < stop:
                own = rows[start:stop]
                images[own] = spec.function(images[own] * (255 / scale), amounts[start:stop]) * (scale / 255)
    return images


def to_int(amount):
    """To the nearest integer, (B,) int32."""
    return array_module(amount).rint(amount).astype("int32")
