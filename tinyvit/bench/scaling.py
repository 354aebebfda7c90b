"""How time and memory of a training step grow with tokens, width, depth and batch."""

from dataclasses import dataclass, replace

from tinyvit.bench.cases import training
from tinyvit.bench.contestants import EAGER, TINYVIT
from tinyvit.bench.run import run

# One model in the middle, and one of its four sizes changed at a time.
MIDDLE = {"tokens": 65, "width": 192, "depth": 2, "batch": 8}
GRID = {
    "tokens": (17, 65, 257, 1025),  # images of 16, 32, 64 and 128 pixels
    "width": (64, 192, 384, 768),   # heads stay 64 wide
    "depth": (1, 2, 4, 8),
    "batch": (2, 8, 32, 128),
}
PATCH, HEAD_DIM = 4, 64


@dataclass(frozen=True)
class Point:
    """A point of the grid: an axis, a size, and the case with that size."""

    axis: str
    size: int
    case: object


def points(grid=None, middle=None):
    """Every point of the grid; the middle one is on all four axes and shares one case."""
    grid, middle = grid or GRID, middle or MIDDLE
    return [Point(axis, size, case_of(middle | {axis: size})) for axis, sizes in grid.items() for size in sizes]


def case_of(sizes):
    """The training step of a model with these sizes."""
    side = PATCH * round((sizes["tokens"] - 1) ** 0.5)
    name = "-".join(f"{axis}{size}" for axis, size in sizes.items())
    case = training(
        name, sizes["batch"], patch_size=PATCH, embed_dim=sizes["width"], depth=sizes["depth"],
        num_heads=max(1, sizes["width"] // HEAD_DIM), mlp_ratio=4.0,
    )  # fmt: skip
    return replace(case, config=replace(case.config, img_size=side))


def contestants_of(settings):
    """The best requested level of tinyvit, and PyTorch, as labels by name."""
    playing = settings.contestants[0]
    ours = [one for one in playing if one in TINYVIT.values()][-1:]
    return ours + [one for one in playing if one is EAGER]


def settings_for(settings, rounds, chosen=None):
    """The settings of the grid's run: few rounds, short turns, two contestants."""
    cases = {point.case.name: point.case for point in chosen or points()}
    ours = contestants_of(settings)[0].name
    return replace(
        settings, cases=tuple(cases.values()), levels=(ours,), compiled=False, rounds=rounds,
        turn=settings.turn / 2, products=False,
    )  # fmt: skip


def measure(settings, after_turn=lambda: None, chosen=None):
    """Measure every point; returns a line for each: axis, size, and time and memory of each contestant."""
    chosen = chosen or points()
    done = {result["case"]: result for result in run(settings, after_turn)}
    return [
        {
            "axis": point.axis,
            "size": point.size,
            "case": point.case.name,
            "results": [
                {name: row[name] for name in ("name", "title", "median", "quartiles", "peak_bytes", "bytes_before",
                                              "problem", "failed")}
                for row in done[point.case.name]["results"]
            ],
        }
        for point in chosen
    ]  # fmt: skip
