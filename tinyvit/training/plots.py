"""Pictures of a run: its figures by epoch, also for TensorBoard, and confusion matrices."""

import io
import time
import warnings
from math import nan
from numbers import Real

import numpy as np

from tinyvit.files import expanded, write
from tinyvit.text import printable

PARTS = ("train", "validation", "test")
COLORS = {"train": "tab:gray"}
FLUSH_SECONDS = 1  # after which a row is on the disk


def draw_curves(history, task):
    """The rows of metrics.jsonl as the bytes of a PNG file: a plot per figure of a `Task`, a line per part of the data.

    A name is "part_figure": train_loss and test_loss are lines of one plot.
    """
    from matplotlib.figure import Figure

    names = dict.fromkeys(["train_loss", *(f"train_{name}" for name in task.metrics), *reversed(task.scores)])
    plots = {}
    for name in names:
        plots.setdefault(name.partition("_")[2], []).append(name)
    epochs = [row["epoch"] for row in history]
    figure = Figure(figsize=(4.5 * len(plots), 3.6), layout="constrained")
    marker = "o" if len(epochs) < 30 else None
    for axes, (what, lines) in zip(figure.subplots(1, len(plots), squeeze=False)[0], plots.items()):
        scale, title = 1, what.replace("_", " ")
        if task.is_share(lines[0]):
            scale, title = 100, f"{title} in %"
        for name in lines:
            part = name.partition("_")[0]
            values = [nan if row[name] is None else scale * row[name] for row in history]
            label = "train, as augmented" if part == "train" else part
            axes.plot(epochs, values, color=COLORS.get(part), marker=marker, markersize=3, label=label)
            if name == task.headline:
                title += f", {part} {task.shown(name, history[-1][name])} at the end"
        axes.set_title(title)
        axes.set_xlabel("epoch")
        axes.set_xlim(0, max(epochs) + 1)
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
        axes.xaxis.get_major_locator().set_params(integer=True)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=120)
    return content.getvalue()


class TensorBoard:
    """Writes rows of metrics as scalars into event files in `folder`; to be closed, or used in a `with`.

    step   how many steps were taken before; a resumed run thereby hides what was written after them by
           the process that died, and shows one curve

    Raises ValueError if tensorboardX is not installed.
    """

    def __init__(self, folder, step=0):
        # A file is named after the second; without a suffix, a second run within it would overwrite the first one's.
        self.writer = summary_writer()(
            str(folder), purge_step=step + 1, flush_secs=FLUSH_SECONDS, filename_suffix=f".{time.time_ns()}"
        )

    def add(self, row):
        """Write every number of a row at row["step"]; `train_loss` is shown as loss/train, beside loss/test."""
        for name, value in row.items():
            if name not in ("epoch", "step") and isinstance(value, Real):
                part, _, what = name.partition("_")
                self.writer.add_scalar(f"{what}/{part}" if part in PARTS else name, float(value), row["step"])

    def close(self):
        """Flush and close the file."""
        self.writer.close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


def summary_writer():
    """tensorboardX's SummaryWriter; raises ValueError, which says how to install it, if it isn't there."""
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise ValueError(
            "TensorBoard logging needs tensorboardX, which is not installed; install the extra tensorboard "
            "(python -m pip install -e '.[tensorboard]'), or train without it: metrics.jsonl has the same numbers"
        ) from error
    return SummaryWriter


# -- confusion matrices -----------------------------------------------------------------------------------------------

MAX_TEXTS, MAX_NAMES = 20, 120  # classes up to which counts, and names, are legible
LONGEST_NAME = 18


def draw_confusion(confusion, classes):
    """A matplotlib Figure of a confusion matrix (K, K): rows are the true classes, columns the predicted ones.

    A cell's colour is its share of the row's images; its text, where it fits, their number. The colour goes with the
    square root of the share, so that rare mistakes show beside the diagonal.
    """
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    confusion, K = np.asarray(confusion), len(classes)
    shares = confusion / np.maximum(confusion.sum(1, keepdims=True), 1)
    names = [printable(name) for name in classes]
    names = [name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…" for name in names]

    cell = float(np.clip(12 / K, 0.13, 0.55))                   # inches
    points = float(np.clip(72 * 0.62 * cell, 3, 9))             # of the letters
    side, longest = max(K * cell, 2.2), max(map(len, names)) * 0.62 * points / 72
    turned = longest > 0.9 * side / K
    left, bottom = longest + 0.5, (longest if turned else 0.2) + 0.5
    width, height = left + side + 1.1, bottom + side + 0.4
    figure = Figure(figsize=(width, height), layout="none")  # places are in inches, whatever a caller's rcParams say
    axes = figure.add_axes((left / width, bottom / height, side / width, side / height))
    picture = axes.imshow(shares, cmap="Blues", norm=PowerNorm(0.5, 0, 1))
    bar = axes.inset_axes((1 + 0.12 / side, 0, 0.16 / side, 1))
    figure.colorbar(picture, cax=bar, format=PercentFormatter(1, 0, " %"), label="share of the class's images")

    accuracy = np.trace(confusion) / max(confusion.sum(), 1)
    axes.set_title(f"{100 * accuracy:.2f} % of {confusion.sum():,} images right", fontsize=11)
    axes.set_xlabel("taken for")
    axes.set_ylabel("class")
    axes.tick_params(length=0)
    axes.set_xticks([])
    axes.set_yticks([])
    if K <= MAX_NAMES:
        # parse_math: a $ in the name of a class is a dollar sign.
        axes.set_xticks(range(K), names, fontsize=points, parse_math=False, rotation=90 if turned else 0)
        axes.set_yticks(range(K), names, fontsize=points, parse_math=False)
    if K <= MAX_TEXTS:
        digits = len(str(confusion.max()))
        fits = min(points, 72 * 0.9 * side / K / (0.6 * digits))
        for i, j in zip(*np.nonzero(confusion)):
            color = "white" if shares[i, j] > 0.4 else "black"
            axes.text(j, i, f"{confusion[i, j]}", ha="center", va="center", color=color, fontsize=fits)
    return figure


def save_confusion(path, confusion, classes):
    """Draw a confusion matrix to a file, in the format of its suffix."""
    content, path = io.BytesIO(), expanded(path)
    with warnings.catch_warnings():  # names in a script that the font lacks are drawn as boxes
        warnings.filterwarnings("ignore", "Glyph .* missing")
        draw_confusion(confusion, classes).savefig(content, format=picture_kind(path), dpi=150, bbox_inches="tight")
    write(path, content.getvalue())


def picture_kind(path):
    """The picture format of a path's suffix; ValueError unless matplotlib can write it there."""
    from matplotlib.figure import Figure

    path = expanded(path)
    kind, kinds = path.suffix.lower().removeprefix("."), Figure().canvas.get_supported_filetypes()
    if kind not in kinds:
        raise ValueError(f"a picture can't be written to {path}; expected a name that ends with .png, .svg or .pdf")
    if path.is_dir() or not path.absolute().parent.is_dir():
        what = "is a folder" if path.is_dir() else f"is in {path.parent}, which doesn't exist"
        raise ValueError(f"{path} {what}; expected the name of a file to write")
    return kind
