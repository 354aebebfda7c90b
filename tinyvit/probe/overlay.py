"""Labels of pixels, in colours over their images."""

import numpy as np

from tinyvit.arrays import IGNORED
from tinyvit.probe.pictures import display_pixels, image_rows

OPACITY = 0.6  # of the colours
WRONG = 0.9, 0.1, 0.1  # the colour of a pixel whose class is wrong


def paint(images, labels, colours):
    """Images (n, C, H, W), pixels from 0 to 1, in grey under the colours (K, 3) of their labels (n, H, W), as
    (n, 3, H, W); pixels that are ignored are in grey alone."""
    grey = np.stack([np.atleast_3d(display_pixels(image)).mean(-1) for image in images])[..., None]
    counted = labels != IGNORED
    painted = (1 - OPACITY) * grey + OPACITY * colours[np.where(counted, labels, 0)]
    return np.where(counted[..., None], painted, grey).transpose(0, 3, 1, 2)


def draw_labels(images, predicted, classes, truth=None):
    """A matplotlib Figure of images (n, C, H, W), pixels from 0 to 1: a column an image, and below it the true classes
    of its pixels and where the predicted ones (n, H, W) are wrong, if they are known, and the predicted ones."""
    from matplotlib import colormaps
    from matplotlib.patches import Patch

    colours = np.array([colormaps["tab20"](number % 20)[:3] for number in range(len(classes))])
    rows = [("image", images), ("predicted", paint(images, predicted, colours))]
    if truth is not None:
        wrong = np.where((predicted != truth) & (truth != IGNORED), 0, IGNORED)
        rows.insert(1, ("truth", paint(images, truth, colours)))
        rows.append(("wrong", paint(images, wrong, np.array([WRONG]))))
    figure = image_rows(rows)
    named = [Patch(color=colour, label=name) for colour, name in zip(colours, classes)]
    figure.legend(handles=named, loc="outside right", fontsize=7)
    return figure
