"""How time and memory of a training step grow with tokens, width, depth and batch."""

import io

from tinyvit.bench.cases import training
from tinyvit.bench.player import EAGER
from tinyvit.bench.run import TURN, run
from tinyvit.bench.table import grown

# One model in the middle, and one of its four sizes changed at a time.
MIDDLE = {"tokens": 65, "width": 192, "depth": 2, "batch": 8}
GRID = {
    "tokens": (17, 65, 257, 1025),  # images of 16, 32, 64 and 128 pixels
    "width": (64, 192, 384, 768),   # heads stay 64 wide
    "depth": (1, 2, 4, 8),
    "batch": (2, 8, 32, 128),
}
PATCH, HEAD_DIM = 4, 64
ROUNDS = 3  # at most


def points():
    """(axis, size, case) of every point of the grid; the middle one is on all four axes and shares one case."""
    return [(axis, size, case_of(**{**MIDDLE, axis: size})) for axis, sizes in GRID.items() for size in sizes]


def case_of(tokens, width, depth, batch):
    """The training step of a model with these sizes."""
    return training(
        f"{tokens} tokens, {width} wide, {depth} deep, {batch} images", batch, mlp_ratio=4.0, patch_size=PATCH,
        img_size=PATCH * round((tokens - 1) ** 0.5), embed_dim=width, depth=depth,
        num_heads=max(1, width // HEAD_DIM),
    )  # fmt: skip


def plan(levels, rounds):
    """The arguments of `run.turns` for the grid: few rounds, the best requested level of tinyvit, and PyTorch."""
    cases = {case.name: case for _, _, case in points()}
    return {"cases": list(cases.values()), "levels": levels[-1:], "rounds": min(rounds, ROUNDS), "products": False}


def measure(levels, threads, rounds, turn=TURN / 2, after_turn=lambda: None):
    """Measure every point; returns a line for each: axis, size, case, and the rows of `run.result_of`."""
    results = run(**plan(levels, rounds), threads=threads, turn=turn, after_turn=after_turn)
    done = {result["case"]: result["results"] for result in results}
    return [{"axis": axis, "size": size, "case": case.name, "results": done[case.name]}
            for axis, size, case in points()]  # fmt: skip


def draw(lines, caption=""):
    """The lines of `measure` as the bytes of a PNG file: time above, memory below, both axes logarithmic.

    Memory is what the process took at most, less what it had before the model was built.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 6), layout="constrained")
    panels = figure.subplots(2, len(GRID), sharey="row", sharex="col")
    for (above, below), axis in zip(panels.T, GRID):
        own = [line for line in lines if line["axis"] == axis]
        for name, colour in ((own[0]["results"][0]["name"], "tab:blue"), (EAGER.name, "tab:red")):
            rows = [(line["size"], row) for line in own for row in line["results"] if row["name"] == name]
            for axes, values in (
                (above, [(size, row["median"]) for size, row in rows]),
                (below, [(size, (grown(row) or 0) / 1e6) for size, row in rows]),
            ):
                known = [(size, value) for size, value in values if value]
                if known:
                    axes.plot(*zip(*known), color=colour, marker="o", markersize=4, label=rows[0][1]["title"])
        for axes in (above, below):
            axes.set(xscale="log", yscale="log")
            axes.grid(alpha=0.3)
        below.set_xlabel({"batch": "images in a batch"}.get(axis, axis))
        below.set_xticks(GRID[axis], [f"{tick:,}" for tick in GRID[axis]])
        below.set_xticks([], minor=True)
    panels[0][0].set_ylabel("seconds a training step")
    panels[1][0].set_ylabel("memory of the step in MB")
    panels[0][0].legend(frameon=False)
    figure.suptitle(caption, fontsize=9)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=120)
    return content.getvalue()
