"""tinyvit predict"""

from dataclasses import dataclass

from tinyvit.cli.model_options import FileOptions, computing, file_to_write
from tinyvit.files import expand_path, write
from tinyvit.probe.overlay import draw_labels
from tinyvit.training.curves import figure_bytes
from tinyvit.training.predict import predict, predict_pixels
from tinyvit.training.trained import require_classifier

DPI = 150


@dataclass(frozen=True, kw_only=True)
class Predict(FileOptions):
    """The likeliest classes of images of your own. IMAGE is a file that Pillow reads, or a folder, of which all images
    are taken. A file that can't be read is named on stderr and skipped; the exit status is then 2. With --json,
    one object a line for each image: {"image": path, "top": [{"class": …, "probability": …}, …]}.

    With a run of the task segmentation, the share of an image's pixels that each class has:
    {"image": path, "pixels": [{"class": …, "share": …}, …]}."""

    top: int = 5
    """Classes to name for each image, the likeliest first."""
    tta: bool = False
    """Average the probabilities over each image and its mirror image; not for letters and digits."""
    invert: bool = False
    """Take the negative of each image, such as of a pen on white paper if the training images were light on black."""

    overlay: str | None = None
    """Draw the class of each pixel over the image, to this file (.png, .svg or .pdf); for a run of the task
    segmentation, and a single image."""

    def __call__(self):
        if self.overlay is not None:
            path = file_to_write(self.overlay, "overlay", (".png", ".svg", ".pdf"))
            if path in map(expand_path, self.images):
                raise ValueError(f"--overlay {self.overlay} would replace the image itself; name another file")
        trained = self.load()
        if trained.task.labels_pixels:
            return self.label_pixels(trained)
        if self.overlay is not None:
            raise ValueError(f"--overlay needs a run of the task segmentation, not of {trained.config.task!r}")
        require_classifier(trained)
        with computing(trained, self):
            found = predict(trained.model, trained.preprocessing, self.images, top=self.top, tta=self.tta,
                            invert=self.invert, threads=self.threads)  # fmt: skip
            return self.show_shares(found, "top", "class")

    def label_pixels(self, trained):
        """Print the share of the pixels of each class, and draw an overlay if it is asked for."""
        if self.tta:
            raise ValueError(f"--tta needs a classifier, and the task of this run is {trained.config.task!r}")
        with computing(trained, self):
            found = list(predict_pixels(trained.model, trained.preprocessing, self.images, threads=self.threads))
        if self.overlay is not None:
            self.draw(found, trained.preprocessing.classes)
        shown = [one._replace(result=one.result and one.result.shares[: self.top]) for one in found]
        return self.show_shares(shown, "pixels", "class", "share")

    def draw(self, found, classes):
        """Draw the overlay to its file."""
        if len(found) != 1:
            raise ValueError(f"--overlay draws a single image, got {len(found)}")
        if found[0].error is None:
            path, (_, pixels, labels) = expand_path(self.overlay), found[0].result
            figure = draw_labels(pixels[None], labels[None], classes)
            write(path, figure_bytes(figure, path.suffix[1:].lower(), dpi=DPI))
