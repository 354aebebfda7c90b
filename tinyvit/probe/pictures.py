"""Images, and values per patch, on matplotlib's axes."""

import numpy as np

HEAT_COLOURS = "inferno"
HEAT_OPACITY = 0.65  # how much of an image a heat map on it covers
DARKEST_GREY, LIGHTEST_GREY = 0.25, 0.9  # of an image under a heat map: black and white would change the map's colours


def new_figure(width, height, rows=1, columns=1, **options):
    """A matplotlib Figure, in inches, and its axes; `options` are those of `subplots`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, **options)


def display_pixels(image):
    """Pixels (C, H, W) from 0 to 1 as matplotlib shows them: (H, W, 3), or the mean of any other number of channels."""
    image = np.asarray(image)
    return np.clip(image.transpose(1, 2, 0) if len(image) == 3 else image.mean(0), 0, 1)


def show_image(axes, image):
    """An image (C, H, W), pixels from 0 to 1, without ticks."""
    pixels = display_pixels(image)
    axes.set(xticks=[], yticks=[])
    return axes.imshow(pixels, cmap="gray", vmin=0, vmax=1)


def image_rows(rows):
    """A matplotlib Figure with a row of images (n, C, H, W), pixels from 0 to 1, for each (name, images)."""
    n = len(rows[0][1])
    figure, panels = new_figure(1.05 * n + 0.6, 1.1 * len(rows), len(rows), n, squeeze=False)
    for row, (name, images) in zip(panels, rows):
        row[0].set_ylabel(name, fontsize=8)
        for axes, image in zip(row, images):
            show_image(axes, image)
    return figure


def picture_panels(count, most, width, height, extra):
    """A matplotlib Figure and `count` axes without frames, at most so many in a row, each of this size in inches.

    extra   height of the title above all of them
    """
    columns = min(max(1, count), most)
    rows = max(1, -(-count // columns))
    figure, panels = new_figure(max(3.5, width * columns), height * rows + extra, rows, columns, squeeze=False)
    for axes in panels.flat:
        axes.set_axis_off()
    return figure, panels.flat


def show_heat(axes, heat, image, norm):
    """A heat map (rows, columns) over an image in grey, whose height and width its patches share evenly."""
    grey = display_pixels(image)
    grey = grey if grey.ndim == 2 else grey.mean(-1)
    show_image(axes, DARKEST_GREY + (LIGHTEST_GREY - DARKEST_GREY) * grey[None])
    height, width = grey.shape
    extent = (-0.5, width - 0.5, height - 0.5, -0.5)
    axes.imshow(heat, cmap=HEAT_COLOURS, norm=norm, alpha=HEAT_OPACITY, extent=extent, interpolation="nearest")


def heat_bar(figure, axes, norm, label, *, percent, **options):
    """The scale of heat maps, beside the axes that they are in."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.ticker import PercentFormatter

    # Of a mappable of its own: that of a heat map is half transparent.
    form = PercentFormatter(1, None, " %") if percent else None
    figure.colorbar(ScalarMappable(norm, HEAT_COLOURS), ax=axes, format=form, label=label, **options)


def mosaic(tiles, gap=1):
    """Tiles (m, n, h, w) as one picture (m · (h + gap) − gap, n · (w + gap) − gap), NaN between them."""
    m, n, h, w = tiles.shape
    canvas = np.full((m, h + gap, n, w + gap), np.nan)
    canvas[:, :h, :, :w] = tiles.swapaxes(1, 2)
    return canvas.reshape(m * (h + gap), n * (w + gap))[: m * (h + gap) - gap, : n * (w + gap) - gap]


def show_grid_of_grids(axes, tiles, *, marked=False, **options):
    """Tiles (rows, columns, rows, columns) in their places: a tile a patch, in it a cell for every patch.

    marked    whether a ring in each tile shows which patch it is of
    options   for matplotlib's imshow
    """
    rows, columns = tiles.shape[:2]
    finer = -(-8 // min(rows, columns))  # pixels a cell, so that the gap of one pixel is narrow beside a tile
    picture = axes.imshow(mosaic(tiles.repeat(finer, 2).repeat(finer, 3)), **options)
    for axis, count, label in ((axes.yaxis, rows, "row of the patch"), (axes.xaxis, columns, "column of the patch")):
        named = np.arange(0, count, -(-count // 16))
        axis.set_ticks(named * (count * finer + 1) + (count * finer - 1) / 2, named)
        axis.set_label_text(label)
    axes.tick_params(length=0)
    for edge in axes.spines.values():
        edge.set_visible(False)
    if marked:
        r, c = np.indices((rows, columns))
        y = r * (rows * finer + 1) + r * finer + (finer - 1) / 2
        x = c * (columns * finer + 1) + c * finer + (finer - 1) / 2
        axes.scatter(x, y, s=float(np.clip(200 / (rows * columns) ** 0.5, 3, 60)), facecolors="none", edgecolors="cyan")
    return picture
