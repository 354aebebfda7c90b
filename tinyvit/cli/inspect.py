"""tinyvit inspect"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from tyro.conf import arg

from tinyvit import functional as F
from tinyvit.cli.inspection import MOST_IMAGES, Subject, look, no_attention, save
from tinyvit.cli.model_options import ModelOptions, class_number, computing, file_to_write
from tinyvit.cli.parsing import parse
from tinyvit.data import read_image
from tinyvit.files import check_folder, expanded, write
from tinyvit.nn.attention import Attention
from tinyvit.probe.explorer import choose, explorer
from tinyvit.text import printable
from tinyvit.training.display import table
from tinyvit.training.metrics import check_finite
from tinyvit.training.tasks import Task
from tinyvit.training.tasks.classification import logits_of
from tinyvit.training.threads import thread_count
from tinyvit.training.trained import load_test_set, require_classifier

MOST_RECONSTRUCTIONS = 64  # images
IN_PAGE = 12  # images, by default: enough for one of each of ten classes


@dataclass(frozen=True, kw_only=True)
class InspectOptions(ModelOptions):
    """Looks inside a trained model: pictures of where each head looks, what it has learned, and what it gets wrong,
    and the main numbers. Or, with --html, one page that shows it step by step. --json prints one object
    with the numbers behind the pictures of the image."""

    html: str | None = None
    """Instead of pictures, write a page to this file that needs neither network nor server: patches, tokens, every
    head, rollout, logits and gradients of some test images."""
    out: str | None = None
    """Folder for the pictures; by default RUN/inspect."""
    image: str | None = None
    """The image to look at: its number among the test images, or a file that Pillow reads; by default 0. With
    --html, the number of the page's first image."""
    layer: int | None = None
    """Draw the attention of this layer only, from 0; by default of all."""
    head: int | None = None
    """Draw the attention of this head only, from 0; with --layer, too, also where each of its patches looks."""
    class_: Annotated[str | None, arg(name="class")] = None
    """The class whose evidence is shown, by its name or number; by default what the image is taken for."""
    images: int | None = None
    """Test images that means are taken over, by default 64; with --html, those in the page, by default 12."""
    reconstructions: int | None = None
    """Test images that are shown with patches hidden and guessed, for a run of the task mae; by default 8."""
    data_dir: str | None = None
    """Folder or archive with the data; by default the one that the run was trained with."""


def inspect(rest):
    """tinyvit inspect RUN"""
    options = parse(InspectOptions, rest, "tinyvit inspect")
    thread_count(options.threads)
    trained = options.load()
    if trained.preprocessing.frames is not None:
        raise ValueError(f"inspect looks at single images, and the model of {options.run} reads videos; tinyvit "
                         "evaluate, predict, features and summary work with it")  # fmt: skip
    (draw_pictures if options.html is None else make_page)(trained, options)


# -- pictures ---------------------------------------------------------------------------------------------------------


def draw_pictures(trained, options):
    """Write the pictures, and print the main numbers and the files."""
    check(options, trained)
    if options.out == "":
        raise ValueError("expected a folder for the pictures, got --out ''")
    folder = expanded(trained.folder.path / "inspect" if options.out is None else options.out)
    check_folder(folder)
    test, why_no_data = test_set(trained, options)
    subject = subject_of(trained, test, options)
    with computing(trained, options):
        view = look(trained, test, why_no_data, subject, options)
    save(view.figures, folder)
    if options.json:
        written = {"out": str(folder), "pictures": list(view.figures), "left_out": view.left_out}
        print(json.dumps({"run": options.run, **view.numbers, **written}, allow_nan=False))
        return
    print(f"{table(view.rows)}\n\nwritten to {printable(folder)}")
    print(table([(name, picture.what) for name, picture in view.figures.items()]))
    print(*(f"  no {name}: {reason}\n" for name, reason in view.left_out.items()), sep="", end="")


def check(options, trained):
    """Raise ValueError for a layer, a head, a class or a decoder that the model doesn't have, and for numbers of images
    that can't be drawn."""
    heads = [module.num_heads for _, module in trained.model.named_modules() if isinstance(module, Attention)]
    for what, number, count in (("layer", options.layer, len(heads)), ("head", options.head, max(heads, default=0))):
        if number is not None and not 0 <= number < count:
            has = f"the model has {count}, counted from 0" if heads else no_attention(trained.model)
            raise ValueError(f"there is no {what} {number}; {has}")
    if options.images is not None and not 1 <= options.images <= MOST_IMAGES:
        raise ValueError(f"expected means over 1 to {MOST_IMAGES:,} images, got --images {options.images}")
    if options.class_ is not None and trained.why_no_classes:
        raise ValueError(f"--class is for a classifier, and {trained.why_no_classes}; leave it out")
    if options.reconstructions is None:
        return
    if type(trained.task).reconstruct is Task.reconstruct:
        raise ValueError(f"--reconstructions needs a run with a decoder (of the task mae), and the task of "
                         f"{trained.folder.path} is {trained.config.task!r}")  # fmt: skip
    if not 1 <= options.reconstructions <= MOST_RECONSTRUCTIONS:
        number = options.reconstructions
        raise ValueError(f"expected 1 to {MOST_RECONSTRUCTIONS} images, got --reconstructions {number}")


def test_set(trained, options):
    """The run's test images and None; or, if only a file is inspected, None and why there are none."""
    try:
        return load_test_set(trained, options.data_dir), None
    except (ValueError, OSError) as error:
        if options.data_dir is not None or options.image is None or is_number(options.image):
            raise
        return None, " ".join(str(error).split())


def is_number(text):
    return text.removeprefix("-").isdecimal()


def image_number(text, test):
    """The test image of this number; ValueError, with the numbers there are, if there is none."""
    n = int(text)
    if not 0 <= n < len(test):
        raise ValueError(f"there is no test image {n}; there are images 0 to {len(test) - 1}")
    return n


def subject_of(trained, test, options):
    """The `Subject` that --image and --class name; ValueError if there is no such image or class."""
    prepared, dtype = trained.preprocessing, trained.model.dtype.name
    image = "0" if options.image is None else options.image
    if is_number(image):
        n, classes = image_number(image, test), test.classes
        name, label, pixels = f"test image {n}", int(test.labels[n]), test.images[n] / test.scale
        images = test.normalise(test.images[n : n + 1], dtype)
    else:
        name, label, classes = Path(image).name, None, prepared.classes
        read = read_image(
            expanded(image), prepared.channels, prepared.img_size, resample=prepared.resample, crop=prepared.crop
        )
        pixels, images = read / 255, prepared(read[None], dtype)
    shown = None if options.class_ is None else class_number(options.class_, classes)
    return Subject(name, pixels, images, label, shown, classes)


# -- the page ---------------------------------------------------------------------------------------------------------


def make_page(trained, options):
    """Write the page, and print its contents."""
    path = check_page(options)
    require_classifier(trained)
    if options.image is not None and not is_number(options.image):
        raise ValueError(
            f"a page shows test images, whose classes are known: expected a number, got --image {options.image!r}"
        )
    model, test = trained.model, load_test_set(trained, options.data_dir)
    first = [] if options.image is None else [image_number(options.image, test)]
    with computing(trained, options):
        logits = logits_of(model, test, options.threads)
        check_finite(logits)
        count = min(IN_PAGE if options.images is None else options.images, len(test))
        rows = list(dict.fromkeys([*first, *choose(F.softmax(logits)[0], test.labels, count)]))[:count]
        pixels = test.images[rows]
        made = explorer(
            model, test.normalise(pixels, model.dtype.name), test.labels[rows],
            np.round(pixels / test.scale * 255).astype("uint8"), test.classes, [f"test image {row}" for row in rows],
            title=f"Inside a Vision Transformer: {trained.folder.path.resolve().name}", mean=test.mean, std=test.std,
        )  # fmt: skip
    content, shown, left_out = made.html.encode(), rows[: made.images], rows[made.images :]
    write(path, content)
    if options.json:
        found = {"run": options.run, "html": str(path), "bytes": len(content), "images": shown, "left_out": left_out}
        print(json.dumps(found))
        return
    print(f"written to {printable(path)}: {len(content) / 1e6:.1f} MB, test images {', '.join(map(str, shown))}")
    if left_out:
        print(f"these test images don't fit in the page: {', '.join(map(str, left_out))}")


def check_page(options):
    """The path of the page. ValueError for an invalid one, and for options about pictures."""
    of_pictures = {"out": options.out, "layer": options.layer, "head": options.head, "class": options.class_}
    for name, value in of_pictures.items():
        if value is not None:
            raise ValueError(f"--{name} is about pictures, but --html writes a page; leave one of them out")
    if options.images is not None and options.images < 1:
        raise ValueError(f"expected at least 1 image in the page, got --images {options.images}")
    return file_to_write(options.html, "html", (".html", ".htm"))  # so that no file of weights is overwritten
