"""tinyvit predict"""

import json
from dataclasses import dataclass

from tinyvit.cli.model_options import FileOptions, Readable, computing, print_shares
from tinyvit.cli.parsing import parse
from tinyvit.training.predict import predict as predictions
from tinyvit.training.trained import require_classifier


@dataclass(frozen=True, kw_only=True)
class PredictOptions(FileOptions):
    """The likeliest classes of images of your own. IMAGE is a file that Pillow reads, or a folder, of which all images
    are taken. A file that can't be read is named on stderr and skipped; the exit status is then 2. With --json,
    one object a line for each image: {"image": path, "top": [{"class": …, "probability": …}, …]}."""

    top: int = 5
    """Classes to name for each image, the likeliest first."""
    tta: bool = False
    """Average the probabilities over each image and its mirror image; not for letters and digits."""


def predict(rest):
    """tinyvit predict RUN IMAGE…"""
    options = parse(PredictOptions, rest, "tinyvit predict")
    trained, readable = options.load(), Readable()
    require_classifier(trained)
    with computing(trained, options):
        found = predictions(trained.model, trained.preprocessing, options.images, top=options.top, tta=options.tta,
                            threads=options.threads)  # fmt: skip
        for prediction in readable.of(found):
            if options.json:
                top = [{"class": name, "probability": probability} for name, probability in prediction.top]
                print(json.dumps({"image": str(prediction.path), "top": top}, allow_nan=False))
            else:
                print_shares(prediction.path, prediction.top)
    return 2 if readable.others else 0
