"""tinyvit inspect"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from tinyvit.cli.model_options import ModelOptions, class_number, computing
from tinyvit.cli.parsing import parse
from tinyvit.files import check_folder, expanded
from tinyvit.nn.attention import Attention
from tinyvit.text import printable

MOST_RECONSTRUCTIONS = 64  # images


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

    from tinyvit.training.threads import thread_count

    thread_count(options.threads)
    trained = options.load()
    if trained.preprocessing.frames is not None:
        raise ValueError(f"inspect looks at single images, and the model of {options.run} reads videos; tinyvit "
                         "evaluate, predict, features and summary work with it")  # fmt: skip
    (draw_pictures if options.html is None else make_page)(trained, options)


def draw_pictures(trained, options):
    """Write the pictures, and print the main numbers."""
    from tinyvit.cli.inspection import look, save

    check_numbers(options, trained.model)
    if options.class_ is not None and trained.why_no_classes:
        raise ValueError(f"--class is for a classifier, and {trained.why_no_classes}; leave it out")
    if options.reconstructions is not None:
        require_decoder(trained, options)
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
    else:
        print_view(folder, view)


def make_page(trained, options):
    """Write the page, and print its contents."""
    from tinyvit.cli.page import check_page, page_of
    from tinyvit.files import write
    from tinyvit.training.trained import load_test_set, require_classifier

    path = check_page(options)
    require_classifier(trained)
    if options.image is not None and not is_number(options.image):
        raise ValueError(
            f"a page shows test images, whose classes are known: expected a number, got --image {options.image!r}"
        )
    test = load_test_set(trained, options.data_dir)
    first = None if options.image is None else image_number(options.image, test)
    with computing(trained, options):
        page = page_of(trained, test, first, options)
    content = page.html.encode()
    write(path, content)
    if options.json:
        found = {"run": options.run, "html": str(path), "bytes": len(content), "images": page.rows}
        print(json.dumps({**found, "left_out": page.left_out}))
        return
    print(f"written to {printable(path)}: {len(content) / 1e6:.1f} MB, test images {', '.join(map(str, page.rows))}")
    if page.left_out:
        print(f"these test images don't fit in the page: {', '.join(map(str, page.left_out))}")


def check_numbers(options, model):
    """Raise ValueError for a layer or head that the model doesn't have, and for no images to take means over."""
    from tinyvit.cli.inspection import MOST_IMAGES, no_attention

    heads = [module.num_heads for _, module in model.named_modules() if isinstance(module, Attention)]
    for what, number, count in (("layer", options.layer, len(heads)), ("head", options.head, max(heads, default=0))):
        if number is not None and not heads:
            raise ValueError(f"--{what} is about attention, and {no_attention(model)}; leave it out")
        if number is not None and not 0 <= number < count:
            has = f"layers 0 to {count - 1}" if what == "layer" else f"heads 0 to {count - 1} in each layer"
            raise ValueError(f"there is no {what} {number}; the model has {has if count > 1 else f'{what} 0 only'}")
    if options.images is not None and not 1 <= options.images <= MOST_IMAGES:
        raise ValueError(f"expected means over 1 to {MOST_IMAGES:,} images, got --images {options.images}")


def require_decoder(trained, options):
    """Raise ValueError for a run without a decoder, and for no images to reconstruct."""
    from tinyvit.training.tasks import Task

    if type(trained.task).reconstruct is Task.reconstruct:
        raise ValueError(f"--reconstructions needs a run with a decoder (of the task mae), and the task of "
                       f"{trained.folder.path} is {trained.config.task!r}")  # fmt: skip
    if not 1 <= options.reconstructions <= MOST_RECONSTRUCTIONS:
        raise ValueError(f"expected 1 to {MOST_RECONSTRUCTIONS} images, got {options.reconstructions} reconstructions")


def test_set(trained, options):
    """The run's test images and None; or, if only a file is inspected, None and why there are none."""
    from tinyvit.training.trained import load_test_set

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
    from tinyvit.cli.inspection import Subject
    from tinyvit.data import read_image

    dtype = trained.model.dtype.name
    image = "0" if options.image is None else options.image
    if is_number(image):
        n, shown = image_number(image, test), shown_class(options, test.classes)
        pixels, label = test.images[n : n + 1], int(test.labels[n])
        images = test.normalise(pixels, dtype)
        return Subject(f"test image {n}", pixels[0] / test.scale, images, label, shown, test.classes)
    prepared = trained.preprocessing
    shown = shown_class(options, prepared.classes)
    pixels = read_image(
        expanded(image), prepared.channels, prepared.img_size, resample=prepared.resample, crop=prepared.crop
    )
    images = prepared(pixels[None], dtype)
    return Subject(Path(image).name, pixels / 255, images, None, shown, prepared.classes)


def shown_class(options, classes):
    """The number of the class that --class names; None without it."""
    return None if options.class_ is None else class_number(options.class_, classes)


def print_view(folder, view):
    """Print the main numbers, and the files that were written."""
    from tinyvit.training.display import table

    print(table(view.rows))
    print(f"\nwritten to {printable(folder)}")
    print(table([(name, picture.what) for name, picture in view.figures.items()]))
    for name, reason in view.left_out.items():
        print(f"  no {name}: {reason}")
