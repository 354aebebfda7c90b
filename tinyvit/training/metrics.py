"""Accuracy, calibration and mistakes of a classifier, from its logits and the labels, and its confusion matrix as a
picture. NumPy arrays: this is done once, after all images."""

import warnings
from typing import NamedTuple

import numpy as np

from tinyvit.files import expand_path, write
from tinyvit.functional.softmax import log_softmax
from tinyvit.text import printable
from tinyvit.training.curves import figure_bytes
from tinyvit.training.display import percent
from tinyvit.training.tasks.task import NotFinite, Report

BINS = 15  # of the calibration error, as in Guo et al.
SHOWN = 10  # best and worst classes in the table, if there are more than twice as many
MAX_TEXTS, MAX_NAMES = 20, 120  # classes up to which counts, and names, are legible
LONGEST_NAME = 18


class Metrics(NamedTuple):
    """accuracy    share of images whose likeliest class is right
    top5_accuracy  share of images whose class is among the five likeliest (or all, if there are fewer)
    loss           mean cross-entropy
    ece            expected calibration error
    recall         (K,) share of a class's images that are recognised: its accuracy; NaN for a class without images
    precision      (K,) share right of the images predicted as a class; NaN for a class that is never predicted
    confusion      (K, K) images of class i that are predicted as class j
    """

    accuracy: float
    top5_accuracy: float
    loss: float
    ece: float
    recall: np.ndarray
    precision: np.ndarray
    confusion: np.ndarray


def measure(logits, labels):
    """All `Metrics` of logits (n, K) with labels (n,); NotFinite if a logit is NaN or infinite."""
    from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

    check_finite(logits)
    K = logits.shape[1]
    log_probs = log_softmax(logits.astype("float64"))
    ranked = likeliest(logits, 5)
    hits = ranked == labels[:, None]
    predicted, classes = ranked[:, 0], np.arange(K)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "A single label")  # a model may have one class
        confusion = confusion_matrix(labels, predicted, labels=classes)
    precision, recall, _, _ = precision_recall_fscore_support(labels, predicted, labels=classes, zero_division=np.nan)
    return Metrics(
        accuracy=float(hits[:, 0].mean()),
        top5_accuracy=float(hits.any(1).mean()),
        loss=float(-log_probs[np.arange(len(labels)), labels].mean()),
        ece=calibration_error(np.exp(log_probs.max(1)), hits[:, 0]),
        recall=recall,
        precision=precision,
        confusion=confusion,
    )


def likeliest(logits, count):
    """The `count` classes (or all) with the highest logits, the highest first; of equal ones the lower class first."""
    return np.argsort(-logits, axis=1, kind="stable")[:, :count]


def calibration_error(confidences, correct, bins=BINS):
    """Expected calibration error Σₘ |Bₘ|/n · |acc(Bₘ) − conf(Bₘ)| over bins of equal width: Bₘ holds the images whose
    highest probability is in ((m−1)/M, m/M]. Guo et al. 2017, "On calibration of modern neural networks", eq. 3.
    """
    where = np.clip(np.ceil(confidences * bins).astype(int) - 1, 0, bins - 1)
    # |Bₘ| · (acc − conf) is the sum of (correct − confidence) in the bin.
    gaps = np.bincount(where, weights=correct - confidences, minlength=bins)
    return float(np.abs(gaps).sum() / len(confidences))


def check_finite(rows, what="logits", names=None):
    """Raise NotFinite if a row (n, D), of images of these names or numbered from 0, has NaN or infinity."""
    if not np.isfinite(rows).all():
        wrong = int(np.flatnonzero(~np.isfinite(rows).all(1))[0])
        name = wrong if names is None else names[wrong]
        raise NotFinite(f"the {what} of image {name} are NaN or infinite: the weights are damaged or diverged")


# -- as JSON and as a table -------------------------------------------------------------------------------------------


def report_of(logits, dataset, part="test"):
    """The `Report` of a classifier's logits (n, K) for a `Dataset`."""
    metrics, classes = measure(logits, dataset.labels), dataset.classes
    figures = {
        f"{part}_accuracy": metrics.accuracy,
        f"{part}_loss": metrics.loss,
        "top5_accuracy": metrics.top5_accuracy,
        "ece": metrics.ece,
        "per_class": by_name(classes, metrics.recall),
        "precision": by_name(classes, metrics.precision),
        "confusion": metrics.confusion.tolist(),
    }
    rows = [(f"{part} accuracy", percent(metrics.accuracy))]
    if len(classes) > 5:
        rows.append(("in the top 5", percent(metrics.top5_accuracy)))
    rows += [(f"{part} loss", f"{metrics.loss:.4f}"), ("calib. error", percent(metrics.ece))]
    return Report(figures, rows, "\n" + "\n".join(class_table(classes, metrics)))


def by_name(classes, values):
    """Values by class; None where there is none."""
    return {name: float(value) if value == value else None for name, value in zip(classes, values)}


def class_table(classes, metrics):
    """Lines of a table with a row per class, the worst first: its accuracy, and the classes that its images are
    mistaken for.

    Classes without images and without predictions are omitted.
    """
    classes = [printable(name) for name in classes]
    mistakes = metrics.confusion * (1 - np.eye(len(classes), dtype=int))
    order = np.argsort(metrics.recall, kind="stable")  # a class without images is last
    order = order[np.isfinite(metrics.recall[order]) | np.isfinite(metrics.precision[order])]
    width = max(len("class"), *map(len, classes))
    yield f"\n  {'class':<{width}}   images   accuracy   precision   most often taken for"
    for place, k in enumerate(order):
        if len(order) > 2 * SHOWN and SHOWN <= place < len(order) - SHOWN:
            if place == SHOWN:
                yield f"  … {len(order) - 2 * SHOWN} classes in between …"
            continue
        other = mistakes[k].argmax()
        taken = f"{classes[other]} ({mistakes[k, other]:,})" if mistakes[k, other] else ""
        images = f"{metrics.confusion[k].sum():,}"
        yield (
            f"  {classes[k]:<{width}}   {images:>6}   {percent(metrics.recall[k]):>8}   "
            f"{percent(metrics.precision[k]):>9}   {taken}"
        ).rstrip()


# -- as a picture -----------------------------------------------------------------------------------------------------


def draw_confusion(confusion, classes):
    """A matplotlib Figure of a confusion matrix (K, K): rows are the true classes, columns the predicted ones.

    A cell's colour is its share of the row's images; its text, for few classes, their number. The colour goes with the
    square root of the share, so that rare mistakes show beside the diagonal.
    """
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure
    from sklearn.metrics import ConfusionMatrixDisplay

    confusion, K = np.asarray(confusion), len(classes)
    shares = confusion / np.maximum(confusion.sum(1, keepdims=True), 1)
    names = [printable(name).replace("$", r"\$") for name in classes]  # which would begin a formula
    names = [name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…" for name in names]
    side, points = float(np.clip(0.55 * K, 2.2, 14)), float(np.clip(500 / K, 3, 9))  # inches, and of the letters
    figure = Figure(figsize=(side + 3.5, side + 2), layout="constrained")
    axes = figure.add_subplot()
    shown = ConfusionMatrixDisplay(shares, display_labels=names).plot(
        ax=axes, include_values=K <= MAX_TEXTS, cmap="Blues", xticks_rotation="vertical", text_kw={"fontsize": points},
        im_kw={"norm": PowerNorm(0.5, 0, 1)},
    )  # fmt: skip
    for where, text in np.ndenumerate(shown.text_) if K <= MAX_TEXTS else ():
        text.set_text(f"{confusion[where]}" if confusion[where] else "")
    axes.tick_params(length=0, labelsize=points, labelbottom=K <= MAX_NAMES, labelleft=K <= MAX_NAMES)
    accuracy = np.trace(confusion) / max(confusion.sum(), 1)
    axes.set(xlabel="taken for", ylabel="class", title=f"{100 * accuracy:.2f} % of {confusion.sum():,} images right")
    return figure


def save_confusion(path, confusion, classes):
    """Draw a confusion matrix to a file, in the format of its suffix."""
    path, figure = expand_path(path), draw_confusion(confusion, classes)
    write(path, figure_bytes(figure, path.suffix[1:], dpi=150, bbox_inches="tight"))
