"""The picture of `scaling`: time above, memory below, one column for each size that grows."""

import io

from tinyvit.bench.table import grown

AXES = {"tokens": "tokens", "width": "width", "depth": "blocks", "batch": "images in a batch"}
COLOURS = ("tab:blue", "tab:red")


def draw(lines, caption=""):
    """The lines of `scaling.measure` as the bytes of a PNG file: 2×4 panels, both axes logarithmic.

    Memory is what the process took at most, less what it had before the model was built.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 6), layout="constrained")
    panels = figure.subplots(2, len(AXES), sharey="row", sharex="col", squeeze=False)
    names = {row["name"]: row["title"] for line in lines for row in line["results"]}
    for column, (axis, label) in enumerate(AXES.items()):
        ticks = sorted({line["size"] for line in lines if line["axis"] == axis})
        for row, what in enumerate((seconds, megabytes)):
            axes = panels[row][column]
            for colour, (name, title) in zip(COLOURS, names.items()):
                xs, ys = series(lines, axis, name, what)
                axes.plot(xs, ys, color=colour, marker="o", markersize=4, label=title)
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
            axes.set_xticks([], minor=True)
            axes.grid(alpha=0.3)
        panels[1][column].set_xlabel(label)
    panels[0][0].set_ylabel("seconds a training step")
    panels[1][0].set_ylabel("memory of the step in MB")
    if names:
        panels[0][0].legend(frameon=False)
    figure.suptitle(caption, fontsize=9)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=120)
    return content.getvalue()


def series(lines, axis, name, what):
    """Sizes and values of one contestant on one axis, where there is a value that a logarithm can show."""
    pairs = [
        (line["size"], what(row))
        for line in lines
        for row in line["results"]
        if line["axis"] == axis and row["name"] == name
    ]
    pairs = sorted((size, value) for size, value in pairs if value is not None and value > 0)
    return [size for size, _ in pairs], [value for _, value in pairs]


def seconds(row):
    return row["median"]


def megabytes(row):
    more = grown(row)
    return None if more is None else more / 1e6
