"""tinyvit predict"""

import json
from dataclasses import dataclass

from tinyvit.cli.model_options import FileOptions, Readable, computing, parse_run_and_images
from tinyvit.cli.parsing import say_why_no_gpu
from tinyvit.text import printable

BAR = 20  # characters for a probability of 1


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
    run_path, paths, options = parse_run_and_images(rest, PredictOptions, "tinyvit predict RUN IMAGE…")

    from tinyvit.training.predict import BATCH
    from tinyvit.training.predict import predict as predictions
    from tinyvit.training.trained import load_classifier

    trained = load_classifier(run_path, options.device, options.best)
    show, readable = show_json if options.json else show_text, Readable()
    with computing(trained, options, BATCH):
        found = predictions(trained.model, trained.preprocessing, paths, top=options.top, tta=options.tta,
                            threads=options.threads)  # fmt: skip
        for prediction in readable.of(found):
            show(prediction)
    if readable.others:
        return 2
    say_why_no_gpu(trained.why_not_gpu)
    return 0


def show_json(prediction):
    top = [{"class": name, "probability": probability} for name, probability in prediction.top]
    print(json.dumps({"image": str(prediction.path), "top": top}, allow_nan=False))


def show_text(prediction):
    top = [(printable(name), probability) for name, probability in prediction.top]
    width = max(len(name) for name, _ in top)
    print(printable(prediction.path))
    for name, probability in top:
        bar = "█" * round(BAR * probability)
        print(f"  {name:<{width}}   {100 * probability:6.2f} %  {bar}".rstrip())
