"""How time and memory of a training step grow with tokens, width, depth and batch."""

from tinyvit.bench.cases import training_case
from tinyvit.bench.table import memory_growth
from tinyvit.training.curves import figure_bytes

# One model in the middle, and one of its four sizes changed at a time.
REFERENCE_SIZES = {"tokens": 65, "width": 192, "depth": 2, "batch": 8}
AXIS_SIZES = {
    "tokens": (17, 65, 257, 1025),  # images of 16, 32, 64 and 128 pixels
    "width": (64, 192, 384, 768),   # heads stay 64 wide
    "depth": (1, 2, 4, 8),
    "batch": (2, 8, 32, 128),
}
PATCH_SIZE, HEAD_DIM = 4, 64


def scaling_case(tokens, width, depth, batch):
    """The training step of a model with these sizes."""
    side = PATCH_SIZE * round((tokens - 1) ** 0.5)
    return training_case(f"{tokens} tokens", batch, mlp_ratio=4.0, patch_size=PATCH_SIZE, img_size=side,
                         embed_dim=width, depth=depth, num_heads=max(1, width // HEAD_DIM))  # fmt: skip


def cases():
    """{axis: its cases}; the one in the middle is on all four axes."""
    return {axis: [scaling_case(**REFERENCE_SIZES | {axis: size}) for size in sizes]
            for axis, sizes in AXIS_SIZES.items()}  # fmt: skip


def draw(results, caption=""):
    """The results of `run` for all cases as the bytes of a PNG file: time above, memory below, both axes logarithmic.

    Memory is what the process took at most, less what it had before the model was built.
    """
    from matplotlib.figure import Figure

    found = {result["title"]: result["results"] for result in results}
    figure = Figure(figsize=(13, 6), layout="constrained")
    panels = figure.subplots(2, len(AXIS_SIZES), sharey="row", sharex="col")
    for (above, below), (axis, own) in zip(panels.T, cases().items()):
        for rows in zip(*(found[case.title] for case in own)):  # of a contestant
            seconds, memory = [row["median"] for row in rows], map(memory_growth, rows)
            for axes, values in ((above, seconds), (below, memory)):
                known = [value or float("nan") for value in values]
                axes.plot(AXIS_SIZES[axis], known, marker="o", markersize=4, label=rows[0]["title"])
                axes.set(xscale="log", yscale="log")
                axes.grid(visible=True, alpha=0.3)
        below.set_xlabel({"batch": "images in a batch"}.get(axis, axis))
        below.set_xticks(AXIS_SIZES[axis], [f"{tick:,}" for tick in AXIS_SIZES[axis]])
        below.set_xticks([], minor=True)
    panels[0][0].set_ylabel("seconds a training step")
    panels[1][0].set_ylabel("bytes that the step takes")
    panels[0][0].legend(frameon=False)
    figure.suptitle(caption, fontsize=9)
    return figure_bytes(figure, dpi=120)
