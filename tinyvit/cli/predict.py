"""tinyvit predict"""

import json
import sys
from dataclasses import dataclass
from typing import Literal

from tinyvit.cli.parsing import BadInput, parse, say_why_no_gpu, separate

BAR = 20  # characters for a probability of 1


@dataclass(frozen=True)
class PredictOptions:
    """What a trained model sees in images of your own. IMAGE is a file that Pillow reads, or a folder, of which all
    images are taken. What can't be read is named on stderr, the others are still done, and the exit status is 2."""

    top: int = 5
    """Classes to name for each image, the likeliest first."""
    tta: bool = False
    """Average the probabilities over each image and its mirror image; not for letters and digits."""
    json: bool = False
    """Print a JSON object a line for each image: {"image": path, "top": [{"class": …, "probability": …}, …]}."""
    best: bool = False
    """Take the weights that did best on the way, and not the last ones."""
    device: str = "auto"
    """Where to compute: cpu, cuda for a GPU, cuda:1 for the second of several; auto takes a GPU if one works."""
    threads: int | None = None
    """CPU threads, of the computation and of reading files."""
    kernels: Literal["reference", "numpy", "fast"] | None = None
    """How operations are computed; by default TINYVIT_KERNELS, or the best that is installed."""
    data_dir: str | None = None
    """The run's data set; only needed for a run that has no preprocessing.json."""


def predict(rest):
    """tinyvit predict RUN IMAGE…"""
    arguments, rest = separate(rest, PredictOptions)
    options = parse(PredictOptions, rest, "tinyvit predict RUN IMAGE…")
    if len(arguments) < 2 or "" in arguments:
        got = f"{' '.join(arguments)} and no image" if arguments else "nothing"
        raise BadInput(f"expected a run folder and images: tinyvit predict RUN IMAGE…, got {got}")
    run_path, *paths = arguments

    from tinyvit.functional.levels import using
    from tinyvit.training.memory_needs import room_to_evaluate
    from tinyvit.training.predict import BATCH
    from tinyvit.training.predict import predict as run_prediction
    from tinyvit.training.trained import load_classifier

    trained = load_classifier(run_path, options.device, options.best)
    prepared = trained.preprocessing or preprocessing_of(trained, options.data_dir)
    show, unreadable = show_json if options.json else show_text, 0
    with using(options.kernels), room_to_evaluate(trained.model, BATCH):
        for prediction in run_prediction(
            trained.model, prepared, paths, top=options.top, tta=options.tta, threads=options.threads
        ):
            if prediction.error is None:
                show(prediction)
            else:
                unreadable += 1
                sys.stdout.flush()
                print("tinyvit: error:", " ".join(prediction.error.split()), file=sys.stderr, flush=True)
    if unreadable:
        return 2
    say_why_no_gpu(trained.why_not_gpu)
    return 0


def preprocessing_of(trained, data_dir):
    """The preprocessing of a run that was made before runs kept it: out of its data set."""
    from tinyvit.data.preprocessing import Preprocessing
    from tinyvit.training.trained import load_data

    if data_dir is None and trained.config.dataset != "digits":  # which are always at hand
        raise ValueError(
            f"{trained.folder.path} has no preprocessing.json, being of an earlier version; give its data set "
            f"({trained.config.dataset}) by --data-dir, or train it again"
        )
    return Preprocessing.from_dataset(load_data(trained, data_dir).train)


def show_json(prediction):
    top = [{"class": name, "probability": probability} for name, probability in prediction.top]
    print(json.dumps({"image": str(prediction.path), "top": top}, allow_nan=False))


def show_text(prediction):
    from tinyvit.text import printable

    top = [(printable(name), probability) for name, probability in prediction.top]
    width = max(len(name) for name, _ in top)
    print(prediction.path)
    for name, probability in top:
        bar = "█" * round(BAR * probability)
        print(f"  {name:<{width}}   {100 * probability:6.2f} %  {bar}".rstrip())
