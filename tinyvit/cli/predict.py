"""tinyvit predict"""

from dataclasses import dataclass

from tinyvit.cli.model_options import FileOptions, computing
from tinyvit.training.predict import predict
from tinyvit.training.trained import require_classifier


@dataclass(frozen=True, kw_only=True)
class Predict(FileOptions):
    """The likeliest classes of images of your own. IMAGE is a file that Pillow reads, or a folder, of which all images
    are taken. A file that can't be read is named on stderr and skipped; the exit status is then 2. With --json,
    one object a line for each image: {"image": path, "top": [{"class": …, "probability": …}, …]}."""

    top: int = 5
    """Classes to name for each image, the likeliest first."""
    tta: bool = False
    """Average the probabilities over each image and its mirror image; not for letters and digits."""
    invert: bool = False
    """Take the negative of each image, such as of a pen on white paper if the training images were light on black."""

    def __call__(self):
        trained = self.load()
        require_classifier(trained)
        with computing(trained, self):
            found = predict(trained.model, trained.preprocessing, self.images, top=self.top, tta=self.tta,
                            invert=self.invert, threads=self.threads)  # fmt: skip
            return self.show_shares(found, "top", "class")
