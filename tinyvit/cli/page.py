"""The page that `tinyvit inspect RUN --html FILE` writes."""

import os
from typing import NamedTuple

import numpy as np

from tinyvit import functional as F
from tinyvit.files import expanded
from tinyvit.probe.explorer import choose, explorer
from tinyvit.training.metrics import check_finite
from tinyvit.training.tasks.classification import logits_of

IMAGES = 12  # by default: enough for one of each of ten classes


class Page(NamedTuple):
    """A page, the test images in it, and those that didn't fit."""

    html: str
    rows: list[int]
    left_out: list[int]


def check_page(options):
    """The path of the page. ValueError for an invalid one, and for options about pictures."""
    of_pictures = {"out": options.out, "layer": options.layer, "head": options.head, "class": options.class_}
    for name, value in of_pictures.items():
        if value is not None:
            raise ValueError(f"--{name} is about pictures, but --html writes a page; leave one of them out")
    if options.images is not None and options.images < 1:
        raise ValueError(f"expected at least 1 image in the page, got --images {options.images}")
    path = expanded(options.html)
    if path.suffix.lower() not in (".html", ".htm"):  # so that no file of weights is overwritten
        raise ValueError(f"expected a file for the page that ends in .html, got --html {options.html!r}")
    if path.is_dir():
        raise ValueError(f"{path} is a folder; name a file in it, as {path / 'explorer.html'}")
    if not path.parent.is_dir():
        raise ValueError(f"there is no folder {path.parent} for the page; make it first")
    return path


def page_of(trained, test, first, options):
    """The `Page` of a run's test images, `first` in front if it is not None."""
    logits = logits_of(trained.model, test, options.threads)
    check_finite(logits)
    count = min(IMAGES if options.images is None else options.images, len(test))
    rows = choose(F.softmax(logits)[0], test.labels, count)
    if first is not None:
        rows = [first, *(row for row in rows if row != first)][:count]
    pixels = test.images[rows]
    made = explorer(
        trained.model,
        test.normalise(pixels, trained.model.dtype.name),
        test.labels[rows],
        np.round(pixels / test.scale * 255).astype("uint8"),
        test.classes,
        [f"test image {row}" for row in rows],
        title=f"Inside a Vision Transformer: {os.path.basename(os.path.realpath(trained.folder.path))}",
        mean=test.mean,
        std=test.std,
    )
    return Page(made.html, rows[: made.images], rows[made.images :])
