"""Feature maps of convolutional networks."""

import numpy as np

from tinyvit.models.convnet import Trunk
from tinyvit.probe.pictures import new_figure, show_image

MAX_CHANNELS = 8  # channels shown of each layer


def trunk_of(model):
    """The `Trunk` of a convolutional network or of a hybrid, or None."""
    return next((module for _, module in model.named_modules() if isinstance(module, Trunk)), None)


def feature_maps(model, trace):
    """The feature maps of each block of a ResNet, or of a hybrid's stem, in a `Trace`: {name: (B, C, H, W)}.

    Raises ValueError for a model without a convolutional network.
    """
    trunk = trunk_of(model)
    if trunk is None:
        raise ValueError(f"{type(model).__name__} has no feature maps: it makes tokens of patches")
    return {name: trace.values[part.path] for name, part in trunk.parts()}


def most_varied(maps, count=MAX_CHANNELS):
    """The channels of maps (C, H, W) with the largest variance over their positions, the largest first: (count,)."""
    return np.argsort(-maps.var((-2, -1)), kind="stable")[:count]


def draw_feature_maps(maps, image, *, title=""):
    """A matplotlib Figure of the maps {name: (C, H, W)} of an image (C, H, W): a row a layer, of its `most_varied`.

    image   pixels from 0 to 1

    Each panel goes from its smallest number (black) to its largest (white).
    """
    figure, panels = new_figure(MAX_CHANNELS + 1.2, 1.05 * len(maps) + 0.5, len(maps), MAX_CHANNELS + 1, squeeze=False)
    for row, (name, channels) in zip(panels, maps.items()):
        row[0].set_ylabel(name, fontsize=7)
        show_image(row[0], image)
        for ax, channel in zip(row[1:], most_varied(channels)):
            ax.imshow(channels[channel], cmap="gray")
            ax.set_title(channel, fontsize=7, pad=2)
        for ax in row[1:]:
            ax.set_axis_off()
    figure.suptitle(title, fontsize=9, parse_math=False)
    return figure
