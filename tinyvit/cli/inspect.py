"""tinyvit inspect"""

from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Annotated

import numpy as np
from tyro.conf import arg

from tinyvit import functional as F
from tinyvit.backend import to_device, to_numpy
from tinyvit.cli.model_options import ModelOptions, class_number, computing, file_to_write
from tinyvit.cli.parsing import check_least
from tinyvit.data.images import read_image
from tinyvit.files import check_folder, expand_path, write
from tinyvit.probe.explorer import choose_images, explorer
from tinyvit.probe.inspection import Inspection, evenly_spaced
from tinyvit.text import printable
from tinyvit.training.curves import figure_bytes
from tinyvit.training.display import table
from tinyvit.training.metrics import check_finite
from tinyvit.training.tasks import Task
from tinyvit.training.tasks.classification import classify, logits_of
from tinyvit.training.trained import load_for_evaluation, require_classifier

DPI = 130
MEAN_IMAGES = 64
PAGE_IMAGES = 12  # enough for one of each of ten classes
RECONSTRUCTIONS = LABELLED = 8  # images


@dataclass(frozen=True, kw_only=True)
class Inspect(ModelOptions):
    """Looks inside a trained model: pictures of where each head looks, what it has learned, and what it gets wrong,
    and the main numbers. Or, with --html, one page that shows it step by step. --json prints one object
    with the numbers behind the pictures of the image."""

    html: str | None = None
    """Instead of pictures, write a page to this file, by default RUN/inspect.html, that needs neither network nor
    server: patches, tokens, every head, rollout, logits and gradients of some test images."""
    out: str | None = None
    """Folder for the pictures; by default RUN/inspect, or inspect-RUN for a model that comes with tinyvit."""
    image: str | None = None
    """The image to look at: its number among the test images, or a file that Pillow reads; by default 0. With
    --html, the number of the page's first image."""
    block: Annotated[int | None, arg(aliases=["--layer"])] = None
    """Draw the attention of this block only, from 0; by default of all."""
    head: int | None = None
    """Draw the attention of this head only, from 0; with --block, too, also where each of its patches looks."""
    class_: Annotated[str | None, arg(name="class")] = None
    """The class whose evidence is shown, by its name or number; by default the predicted one."""
    images: int | None = None
    """Number of test images to average over, by default 64; with --html, of those in the page, by default 12."""
    reconstructions: int | None = None
    """Number of test images to reconstruct from a part of their patches, for a run of the task mae; by default 8."""
    data_dir: str | None = None
    """Folder or archive with the data; by default the one that the run was trained with."""

    def __call__(self):
        check_least(self, images=1, reconstructions=1)
        trained = self.load()
        if trained.preprocessing.frames is not None:
            raise ValueError(f"inspect looks at single images, and the model of {self.run} reads videos; tinyvit "
                             "evaluate, predict, features, knn, probe-linear and summary work with it")  # fmt: skip
        (self.draw_pictures if self.html is None else self.make_page)(trained)

    def default_place(self, trained):
        """The place of the pictures and, with .html added, of the page: in RUN; in the working directory for a model of
        tinyvit's own, which may lie where nobody can write."""
        run = expand_path(self.run)
        return run / "inspect" if run == trained.folder.path else f"inspect-{run}"

    def draw_pictures(self, trained):
        """Write the pictures, and print the main numbers and the files."""
        self.check(trained)
        folder = expand_path(self.default_place(trained) if self.out is None else self.out)
        check_folder(folder)
        model = trained.model.backbone if trained.task.labels_pixels else trained.model
        inspection = Inspection(model, trained.preprocessing.classes, trained.why_no_classes)
        with computing(trained, self):
            test = self.load_test_images(trained, inspection)
            self.draw_image(trained, inspection, test)
            inspection.draw_weights()
            if test is not None:
                self.draw_test_images(trained, inspection, test)
        folder.mkdir(parents=True, exist_ok=True)
        for name, (_, figure) in inspection.pictures.items():
            write(folder / name, figure_bytes(figure, dpi=DPI))
        written = {"out": str(folder), "pictures": list(inspection.pictures), "left_out": inspection.left_out}
        lines = [table(inspection.rows), f"\nwritten to {printable(folder)}",
                 table([(name, caption) for name, (caption, _) in inspection.pictures.items()])]  # fmt: skip
        for reason, names in groupby(inspection.left_out, inspection.left_out.get):
            lines.append(f"  no {', '.join(names)}: {reason}")
        self.show({"run": self.run, **inspection.numbers, **written}, "\n".join(lines))

    def load_test_images(self, trained, inspection):
        """The test images; None, and their pictures left out, if a file is inspected and they can't be loaded."""
        try:
            return load_for_evaluation(trained, self.data_dir).test
        except (ValueError, OSError) as error:
            if self.data_dir is not None or self.number_in(None) is not None:
                raise
            names = ["distance", "spectrum", "norms", "receptive", "most-wrong"]
            names += ["reconstructions"] * can_reconstruct(trained) + ["pixels"] * bool(trained.task.labels_pixels)
            inspection.left_out = dict.fromkeys(names, " ".join(str(error).split()))
            return None

    def draw_image(self, trained, inspection, test):
        """The pictures of the image that --image gives."""
        prepared, dtype, number, label = trained.preprocessing, trained.model.dtype.name, self.number_in(test), None
        if number is None:
            name, channels = Path(self.image).name, prepared.channels
            pixels = read_image(expand_path(self.image), channels, prepared.img_size, resample=prepared.resample,
                                crop=prepared.crop)  # fmt: skip
            images, pixels = prepared(pixels[None], dtype), pixels / 255
        else:
            name, pixels = f"test image {number}", test.images[number] / test.scale
            images = test.normalise(test.images[[number]], dtype)
            label = None if trained.why_no_classes else prepared.classes[test.labels[number]]
        shown = None if self.class_ is None else class_number(self.class_, prepared.classes)
        inspection.draw_image(name, images, pixels, label, shown, block=self.block, head=self.head)

    def draw_test_images(self, trained, inspection, test):
        """The pictures that are made of several test images."""
        rows = evenly_spaced(self.images or MEAN_IMAGES, len(test))
        inspection.draw_means(test.normalise(test.images[rows], trained.model.dtype.name), test.labels[rows])
        if can_reconstruct(trained):
            learner, rows = trained.learner, evenly_spaced(self.reconstructions or RECONSTRUCTIONS, len(test))
            images = test.normalise(test.images[rows], learner.dtype.name)
            with learner.storage.on_device():
                guesses = trained.task.reconstruct(learner, to_device(images, learner.device))
            mean, std = (np.reshape(x, (-1, 1, 1)) for x in (test.mean, test.std))
            inspection.draw_reconstructions(rows, [to_numpy(x) * std + mean for x in (images, *guesses)])
        if trained.task.labels_pixels:
            rows = evenly_spaced(LABELLED, len(test))
            images = test.normalise(test.images[rows], trained.model.dtype.name)
            logits = classify(trained.model, to_device(images, trained.model.device), self.threads)
            pixels, predicted = test.images[rows] / test.scale, to_numpy(logits).argmax(1)
            inspection.draw_pixels(rows, pixels, predicted, test.labels[rows], test.classes)
        if trained.why_no_classes:
            inspection.left_out["most-wrong"] = trained.why_no_classes
            return
        logits = logits_of(trained.model, test, self.threads)
        check_finite(logits)
        inspection.draw_mistakes(logits, test.labels, test.images, test.scale)

    def check(self, trained):
        """Raise ValueError for a class or a decoder that the model doesn't have."""
        if self.class_ is not None and trained.why_no_classes:
            raise ValueError(f"--class is for a classifier, and {trained.why_no_classes}; leave it out")
        if self.reconstructions is not None and not can_reconstruct(trained):
            raise ValueError(f"--reconstructions needs a run of the task mae, not of {trained.config.task!r}")

    def number_in(self, test):
        """The number of the test image that --image gives, by default 0; None if it is a file."""
        text = self.image or "0"
        if not text.removeprefix("-").isdecimal():
            return None
        if test is not None and not 0 <= int(text) < len(test):
            raise ValueError(f"there is no test image {text}; there are images 0 to {len(test) - 1}")
        return int(text)

    def make_page(self, trained):
        """Write the page, and print its contents."""
        for name in ("out", "block", "head", "class_"):
            if getattr(self, name) is not None:
                raise ValueError(f"--{name.strip('_')} is about pictures, but --html writes a page; leave one out")
        # These endings, so that no file of weights is overwritten.
        path = file_to_write(self.html or f"{self.default_place(trained)}.html", "html", (".html", ".htm"))
        require_classifier(trained)
        model, test = trained.model, load_for_evaluation(trained, self.data_dir).test
        first = self.number_in(test)
        if first is None:
            raise ValueError(f"a page shows test images, whose classes are known: expected a number, got --image "
                             f"{self.image!r}")  # fmt: skip
        with computing(trained, self):
            logits = logits_of(model, test, self.threads)
            check_finite(logits)
            count = min(self.images or PAGE_IMAGES, len(test))
            rows = choose_images(F.softmax(logits)[0], test.labels, count)
            if self.image is not None:
                rows = list(dict.fromkeys([first, *rows]))[:count]
            pixels = test.images[rows]
            page = explorer(
                model, test.normalise(pixels, model.dtype.name), test.labels[rows],
                np.round(pixels / test.scale * 255).astype("uint8"), test.classes,
                [f"test image {row}" for row in rows],
                title=f"Inside a Vision Transformer: {trained.folder.path.resolve().name}",
                mean=test.mean, std=test.std,
            )  # fmt: skip
        content, shown, left_out = page.html.encode(), rows[: page.images], rows[page.images :]
        write(path, content)
        text = f"written to {printable(path)}: {len(content) / 1e6:.1f} MB, test images {', '.join(map(str, shown))}"
        if left_out:
            text += f"\nthese test images don't fit in the page: {', '.join(map(str, left_out))}"
        numbers = {"run": self.run, "html": str(path), "bytes": len(content), "images": shown, "left_out": left_out}
        self.show(numbers, text)


def can_reconstruct(trained):
    """Whether the task of a run has a decoder that guesses hidden patches."""
    return type(trained.task).reconstruct is not Task.reconstruct
