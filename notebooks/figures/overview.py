"""Draws overview.png, the picture in the guide to inspection: python notebooks/figures/overview.py"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import tinyvit

HERE = Path(__file__).parent
IMAGE = 3  # of the test images

model = tinyvit.load("digits")
test = tinyvit.data.load("digits").test
images, labels = test.normalise(test.images[IMAGE : IMAGE + 1]), test.labels[IMAGE : IMAGE + 1]
seen = tinyvit.probe.trace(model, images, labels)
pixels, gradient = images[0, 0], seen.gradients[""][1][0, 0]
rows, columns = seen.grid
side = len(pixels) // rows
attention = tinyvit.probe.over_patches(seen.attention[-1, 0], seen.grid, "avg")  # as the mean of the patches is read
limit = np.abs(gradient).max()

figure = Figure(figsize=(10, 2.9), dpi=144, layout="constrained")
panels = figure.subplot_mosaic(
    [["image", "patches", "head 0", "head 1", "probabilities", "gradient"],
     ["image", "patches", "head 2", "head 3", "probabilities", "gradient"]],
    width_ratios=[2, 2, 1, 1, 2, 2],
)  # fmt: skip
panels["image"].imshow(pixels, cmap="gray")
panels["patches"].imshow(pixels, cmap="gray")
for edge in range(side, len(pixels), side):
    panels["patches"].axhline(edge - 0.5, color="tab:orange")
    panels["patches"].axvline(edge - 0.5, color="tab:orange")
for head, map_ in enumerate(attention):
    panels[f"head {head}"].imshow(map_, cmap="inferno", vmin=0)
panels["gradient"].imshow(gradient, cmap="RdBu", vmin=-limit, vmax=limit)
bars = panels["probabilities"]
bars.barh(range(10), seen.probabilities[0], color=["tab:blue" if k == labels[0] else "silver" for k in range(10)])
bars.set(yticks=range(10), xticks=[0, 1], xlim=(0, 1), box_aspect=1)
bars.invert_yaxis()
titles = {"patches": f"{rows * columns} patches", "gradient": "gradient of the loss\nwith respect to the pixels"}
for name, axes in panels.items():
    axes.set_title(titles.get(name, name), fontsize=8)
    if name != "probabilities":
        axes.set(xticks=[], yticks=[])
title = "a test image → patches → attention of all patches in the last block, on average → classes → and back"
figure.suptitle(title, fontsize=9)
figure.savefig(HERE / "overview.png")
