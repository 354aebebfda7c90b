"""A run's metrics by epoch, as a picture."""

import io
from math import nan


def draw_curves(history, task):
    """The rows of metrics.jsonl as the bytes of a PNG file: a plot per figure of a `Task`, a line per part of the data.

    A name is "part_figure": train_loss and test_loss are lines of one plot.
    """
    from matplotlib.figure import Figure

    plots = {}
    for name in ["train_loss", *(f"train_{name}" for name in task.metrics), *reversed(task.scores)]:
        plots.setdefault(name.partition("_")[2], []).append(name)
    epochs = [row["epoch"] for row in history]
    width, height = 4.5 * len(plots), 3.6
    figure = Figure(figsize=(width, height), layout="none")
    # Margins in inches; those that Matplotlib works out itself take half the time of a picture.
    figure.subplots_adjust(0.65 / width, 0.5 / height, 1 - 0.2 / width, 1 - 0.35 / height, wspace=0.2)
    marker = "o" if len(epochs) < 30 else None
    for axes, (what, lines) in zip(figure.subplots(1, len(plots), squeeze=False)[0], plots.items()):
        scale, title = 1, what.replace("_", " ")
        if task.is_share(lines[0]):
            scale, title = 100, f"{title} in %"
        for name in lines:
            part = name.partition("_")[0]
            values = [nan if row[name] is None else scale * row[name] for row in history]
            color, label = ("tab:gray", "train, as augmented") if part == "train" else (None, part)
            axes.plot(epochs, values, color=color, marker=marker, markersize=3, label=label)
            if name == task.headline:
                title += f", {part} {task.format_score(name, history[-1][name])} at the end"
        axes.set_title(title)
        axes.set_xlabel("epoch")
        axes.set_xlim(0, max(epochs) + 1)
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
        axes.xaxis.get_major_locator().set_params(integer=True)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=120)
    return content.getvalue()
