"""Pages of models with random weights, for tests of their contents and of their behaviour in a browser."""

import json
import re

import numpy as np
from reading import unpacked

from tinyvit import ViTConfig
from tinyvit.probe.explorer import explorer

DIGITS = ViTConfig(8, 2, in_chans=1, num_classes=10, embed_dim=24, depth=3, num_heads=4)


def page_of(model, count=1, classes=None, names=None, **options):
    """(`Explorer` of random images, the images, their labels); names of classes and images unless they are given."""
    config, random = model.config, np.random.default_rng(0)
    height, width = np.broadcast_to(config.img_size, 2)
    pictures = random.integers(0, 256, (count, config.in_chans, height, width), dtype="uint8")
    images = (pictures / 64 - 2).astype(model.dtype)
    labels = np.random.default_rng(1).integers(0, config.num_classes, count)
    classes = [f"class {k}" for k in range(config.num_classes)] if classes is None else classes
    names = [f"image {b}" for b in range(count)] if names is None else names
    return explorer(model, images, labels, pictures, classes, names, **options), images, labels


def about(html):
    """The JSON that a page's script reads."""
    (text,) = re.findall(r'<script type="application/json" id="numbers">(.*?)</script>', html, re.DOTALL)
    return json.loads(text)


def arrays_of(html, image):
    """The arrays by name of one image of a page, as codes."""
    found = about(html)
    return unpacked(found["images"][image]["arrays"], found["layout"])
