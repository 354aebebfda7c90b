"""tinyvit evaluate"""

import json
from dataclasses import dataclass
from typing import Literal

from tinyvit.cli.parsing import parse, positional, say_why_no_gpu

SHOWN = 10  # best and worst classes in the table, if there are more than twice as many


@dataclass(frozen=True)
class EvaluateOptions:
    """How well a trained model does on the test images of its data set, class by class."""

    data_dir: str | None = None
    """Folder or archive with the data; by default the one that the run was trained with."""
    best: bool = False
    """Take the weights that did best on the way, and not the last ones."""
    device: str = "auto"
    """Where to compute: cpu, cuda for a GPU, cuda:1 for the second of several; auto takes a GPU if one works."""
    threads: int | None = None
    """CPU threads."""
    kernels: Literal["reference", "numpy", "fast"] | None = None
    """How operations are computed; by default TINYVIT_KERNELS, or the best that is installed."""
    tta: bool = False
    """Average the probabilities over each image and its mirror image; not for letters and digits."""
    json: bool = False
    """Print one JSON object instead of a table."""
    confusion: str | None = None
    """Draw which classes are taken for which to this file (.png, .svg or .pdf)."""


def evaluate(rest):
    """tinyvit evaluate RUN"""
    run_path, rest = positional(rest, "a run folder first: tinyvit evaluate RUN …")
    options = parse(EvaluateOptions, rest, "tinyvit evaluate RUN")

    import numpy as np

    from tinyvit.functional.levels import using
    from tinyvit.training.confusion import picture_kind, save_confusion
    from tinyvit.training.evaluate import logits_of
    from tinyvit.training.memory_needs import room_to_evaluate
    from tinyvit.training.metrics import measure
    from tinyvit.training.trained import load_classifier, load_test_set

    if options.confusion is not None:
        picture_kind(options.confusion)  # before minutes are spent on computing it
    trained = load_classifier(run_path, options.device, options.best)
    test = load_test_set(trained, options.data_dir)
    with using(options.kernels), room_to_evaluate(trained.model), np.errstate(all="ignore"):  # overflow is said below
        logits = logits_of(trained.model, test, options.threads, options.tta)
    try:
        metrics = measure(logits, test.labels)
    except ValueError as error:
        raise ValueError(f"{trained.folder.model}: {error}") from error

    if options.confusion is not None:
        save_confusion(options.confusion, metrics.confusion, test.classes)
    if options.json:
        result = {
            "test_accuracy": metrics.accuracy,
            "test_loss": metrics.loss,
            **training_of(trained.folder),
            "top5_accuracy": metrics.top5_accuracy,
            "ece": metrics.ece,
            "images": len(test),
            "parameters": trained.model.num_parameters(),
            "dataset": trained.config.dataset,
            "device": trained.model.device,
            "tta": options.tta,
            "per_class": by_name(test.classes, metrics.recall),
            "precision": by_name(test.classes, metrics.precision),
            "confusion": metrics.confusion.tolist(),
        }
        print(json.dumps(result, allow_nan=False))
    else:
        print_scores(trained, test, metrics)
        print_classes(test.classes, metrics)
    say_why_no_gpu(trained.why_not_gpu)


def training_of(folder):
    """Epochs and seconds of a finished run, under the names of its summary."""
    summary = folder.finished() or {}
    return {name: summary[name] for name in ("epochs", "seconds") if name in summary}


def by_name(classes, values):
    """Values by class; None where there is no number."""
    return {name: float(value) if value == value else None for name, value in zip(classes, values)}


def print_scores(trained, test, metrics):
    from tinyvit.training.display import table

    rows = [("test accuracy", percent(metrics.accuracy))]
    if len(test.classes) > 5:
        rows.append(("in the top 5", percent(metrics.top5_accuracy)))
    rows += [
        ("test loss", f"{metrics.loss:.4f}"),
        ("calib. error", percent(metrics.ece)),
        ("test images", f"{len(test):,} of {trained.config.dataset}"),
        ("parameters", f"{trained.model.num_parameters():,}"),
    ]
    print(table(rows))


def print_classes(classes, metrics):
    """A line a class, the worst first: how many of its images are recognised, and what the others are taken for.

    Classes without images that none is taken for are left out.
    """
    import numpy as np

    from tinyvit.text import printable

    classes = [printable(name) for name in classes]
    mistakes = metrics.confusion * (1 - np.eye(len(classes), dtype=int))
    order = np.argsort(metrics.recall, kind="stable")  # a class without images is last
    order = order[np.isfinite(metrics.recall[order]) | np.isfinite(metrics.precision[order])]
    width = max(len("class"), *map(len, classes))
    print(f"\n  {'class':<{width}}   images   accuracy   precision   most often taken for")
    for place, k in enumerate(order):
        if len(order) > 2 * SHOWN and SHOWN <= place < len(order) - SHOWN:
            if place == SHOWN:
                print(f"  … {len(order) - 2 * SHOWN} classes in between …")
            continue
        other = mistakes[k].argmax()
        taken = f"{classes[other]} ({mistakes[k, other]:,})" if mistakes[k, other] else ""
        images = f"{metrics.confusion[k].sum():,}"
        print(
            f"  {classes[k]:<{width}}   {images:>6}   {percent(metrics.recall[k]):>8}   "
            f"{percent(metrics.precision[k]):>9}   {taken}".rstrip()
        )


def percent(share):
    return f"{100 * share:.2f} %" if share == share else "–"
