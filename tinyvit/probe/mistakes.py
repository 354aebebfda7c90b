"""The images that a model gets most wrong."""

from typing import NamedTuple

import numpy as np

from tinyvit.probe.pictures import picture_panels, show_image

MAX_NAME_CHARACTERS = 14


class Mistakes(NamedTuple):
    """Misclassified images, the largest loss first; all (n,)."""

    rows: np.ndarray        # which of the images
    labels: np.ndarray      # their classes
    predicted: np.ndarray   # the predicted classes
    loss: np.ndarray        # −log of the probability of the class
    confidence: np.ndarray  # probability of the predicted class


def most_wrong(logits, labels, count=16):
    """The `count` images (or all that are wrong, if they are fewer) with the largest loss: `Mistakes`.

        wrong: argmaxₖ z ≠ y          loss = −log softmax(z)_y

    logits (n, K), labels (n,). Of equal losses the first image comes first.
    """
    from scipy.special import log_softmax

    labels = np.asarray(labels)
    log_probs = log_softmax(np.asarray(logits, "float64"), axis=1)
    predicted, loss = log_probs.argmax(1), -log_probs[np.arange(len(labels)), labels]
    wrong = np.flatnonzero(predicted != labels)
    rows = wrong[np.argsort(-loss[wrong], kind="stable")][:count]
    return Mistakes(rows, labels[rows], predicted[rows], loss[rows], np.exp(log_probs[rows, predicted[rows]]))


def draw_most_wrong(images, mistakes, classes):
    """A matplotlib Figure of `Mistakes`.

    images    (n, C, H, W), pixels from 0 to 1: those of its rows
    classes   names
    """
    names = [name if len(name) <= MAX_NAME_CHARACTERS else name[: MAX_NAME_CHARACTERS - 1] + "…" for name in classes]
    figure, panels = picture_panels(len(images), 8, 1.4, 2.05, extra=0.4)
    for axes, image, row, label, predicted, _, confidence in zip(panels, images, *mistakes):
        show_image(axes, image)
        axes.set_title(f"{names[label]}\ntaken for {names[predicted]}\n{100 * confidence:.0f} %, image {row}",
                       fontsize=7, parse_math=False)  # fmt: skip
    figure.suptitle("most wrong: the largest loss first" if len(images) else "no image is wrong", fontsize=11)
    return figure
