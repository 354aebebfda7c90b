"""tinyvit evaluate"""

from dataclasses import dataclass

from tinyvit.cli.model_options import ModelOptions, computing, file_to_write
from tinyvit.training.display import table
from tinyvit.training.tasks import NotFinite
from tinyvit.training.trained import load_for_evaluation, require_classifier


@dataclass(frozen=True, kw_only=True)
class Evaluate(ModelOptions):
    """How well a trained model does on the test images of its data set; a classifier class by class."""

    data_dir: str | None = None
    """Folder or archive with the data; by default the one that the run was trained with."""
    tta: bool = False
    """Average the probabilities over each image and its mirror image; not for letters and digits."""
    confusion: str | None = None
    """Draw the confusion matrix to this file (.png, .svg or .pdf)."""

    def __call__(self):
        if self.confusion is not None:
            file_to_write(self.confusion, "confusion", (".png", ".svg", ".pdf"))  # refused before anything is computed
        trained = self.load()
        if trained.task.classifies:
            require_classifier(trained)
        trained.task.train, test = load_for_evaluation(trained, self.data_dir)
        with computing(trained, self) as ranks:
            drawn = self.confusion if ranks.leads else None
            try:
                report = trained.task.report(trained.learner, test, self.threads, self.tta, drawn)
            except NotFinite as error:
                raise ValueError(f"{trained.folder.model}: {error}") from error
        parameters, config, summary = trained.learner.num_parameters(), trained.config, trained.folder.finished() or {}
        numbers = report.figures | {name: summary[name] for name in ("epochs", "seconds") if name in summary} | {
            "images": len(test), "parameters": parameters, "architecture": config.architecture, "task": config.task,
            "dataset": config.dataset, "device": trained.model.device, "tta": self.tta,
        }  # fmt: skip
        rows = [("test images", f"{len(test):,} of {config.dataset}"), ("parameters", f"{parameters:,}")]
        self.show(numbers, table([*report.rows, *rows]) + report.text)
