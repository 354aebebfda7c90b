"""tinyvit evaluate"""

import json
from dataclasses import dataclass

from tinyvit.cli.model_options import ModelOptions, computing_together
from tinyvit.cli.parsing import parse


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(ModelOptions):
    """How well a trained model does on the test images of its data set; a classifier class by class."""

    data_dir: str | None = None
    """Folder or archive with the data; by default the one that the run was trained with."""
    tta: bool = False
    """Average the probabilities over each image and its mirror image; not for letters and digits."""
    confusion: str | None = None
    """Draw the confusion matrix to this file (.png, .svg or .pdf)."""


def evaluate(rest):
    """tinyvit evaluate RUN"""
    options = parse(EvaluateOptions, rest, "tinyvit evaluate")

    from tinyvit.training.display import table
    from tinyvit.training.metrics import picture_kind
    from tinyvit.training.tasks import NotFinite
    from tinyvit.training.trained import load_test_set, require_classifier

    if options.confusion is not None:
        picture_kind(options.confusion)  # refused before anything is computed
    trained = options.load()
    if trained.task.classifies:
        require_classifier(trained)
    test = load_test_set(trained, options.data_dir)
    with computing_together(trained, options) as ranks:
        drawn = options.confusion if ranks.leads else None
        try:
            report = trained.task.report(trained.learner, test, options.threads, options.tta, drawn)
        except NotFinite as error:
            raise ValueError(f"{trained.folder.model}: {error}") from error
    parameters = trained.learner.num_parameters()
    if options.json:
        result = report.figures | training_of(trained.folder) | {
            "images": len(test), "parameters": parameters, "architecture": trained.config.architecture,
            "task": trained.config.task, "dataset": trained.config.dataset, "device": trained.model.device,
            "tta": options.tta,
        }  # fmt: skip
        print(json.dumps(result, allow_nan=False))
    else:
        rows = [("test images", f"{len(test):,} of {trained.config.dataset}"), ("parameters", f"{parameters:,}")]
        print(table([*report.rows, *rows]) + report.text)


def training_of(folder):
    """Epochs and seconds of a finished run, under the names of its summary."""
    summary = folder.finished() or {}
    return {name: summary[name] for name in ("epochs", "seconds") if name in summary}
