"""The metrics of a run, or of several, as a picture."""

import io
import warnings
from math import nan


def draw_curves(histories, task, names=None):
    """The rows of metrics.jsonl as the bytes of a PNG file: a plot per figure of a `Task`, a line per part of the data.

    histories   {label: rows} of each run; several are drawn over minutes as well
    names       the figures to draw, by default all of the task

    A figure's name is "part_figure": train_loss and test_loss are lines of one plot.
    """
    from matplotlib.figure import Figure

    plots, units = {}, ("epoch", "minute") if len(histories) > 1 else ("epoch",)
    for name in names or task.columns:
        plots.setdefault(name.partition("_")[2], []).append(name)
    legend = 0.25 * (len(histories) // 2 + 1)
    width, height = 4.5 * len(plots), 3.6 * len(units) + legend
    figure = Figure(figsize=(width, height), layout="none")
    # Margins in inches; those that Matplotlib works out itself take half the time of a picture.
    figure.subplots_adjust(0.65 / width, (0.5 + legend) / height, 1 - 0.2 / width, 1 - 0.35 / height,
                           wspace=0.2, hspace=0.3)  # fmt: skip
    for unit, row in zip(units, figure.subplots(len(units), len(plots), squeeze=False)):
        for axes, lines in zip(row, plots.values()):
            draw_plot(axes, unit, lines, histories, task)
    lines = {line.get_label(): line for axes in figure.axes for line in axes.lines}
    figure.legend(lines.values(), lines, loc="lower center", ncols=2)
    return figure_bytes(figure, dpi=120)


def figure_bytes(figure, format="png", **options):
    """A matplotlib Figure as the bytes of a file; `options` are those of `savefig`."""
    content = io.BytesIO()
    with warnings.catch_warnings():  # names in a script that the font lacks are drawn as boxes
        warnings.filterwarnings("ignore", "Glyph .* missing")
        figure.savefig(content, format=format, **options)
    return content.getvalue()


def draw_plot(axes, unit, lines, histories, task):
    """Draw the figures `lines`, those of one plot, over epochs or minutes."""
    scale, title = 1, lines[0].partition("_")[2].replace("_", " ")
    if task.is_share(lines[0]):
        scale, title = 100, f"{title} in %"
    for number, (run, history) in enumerate(histories.items()):
        times = [row["epoch"] if unit == "epoch" else row["seconds"] / 60 for row in history]
        marker = "o" if len(times) < 30 else None
        for name in lines:
            values = [nan if row[name] is None else scale * row[name] for row in history]
            style, label = ("--", "dashed: train, as augmented") if name.startswith("train_") else ("-", run)
            axes.plot(times, values, style, color=f"C{number}", marker=marker, markersize=3, label=label)
            if name == task.headline and len(histories) == 1:
                title += f", {run} {task.format_score(name, history[-1][name])} at the end"
    axes.set_title(title)
    axes.set_xlabel(unit)
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    if unit == "epoch":
        axes.xaxis.get_major_locator().set_params(integer=True)
