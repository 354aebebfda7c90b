"""Reads numbers from the texts of the page, and the arrays packed into it."""

import base64
import re
import zlib

import numpy as np

from tinyvit.probe import explorer

EXPONENTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")


def value(text):
    """The number in a text of the page: 0.123, −1.23 × 10⁻⁵, or 12.3 % as 0.123."""
    digits, power, percent = re.fullmatch(r"(−?[\d.]+)(?: × 10([⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+))?( %)?", text.strip()).groups()
    number = float(digits.replace("−", "-")) * 10.0 ** int((power or "⁰").translate(EXPONENTS))
    return number / 100 if percent else number


def values(locator):
    return [value(text) for text in locator.all_inner_texts()]


def go_to(page, step):
    """Choose a step by its place in the row of steps."""
    page.locator("nav button").nth(steps_of(page).index(step)).click()


def steps_of(page):
    return STEPS if page.locator("nav button").count() == len(STEPS) else RECORDED


STEPS = tuple(explorer.STEPS)
RECORDED = tuple(step for step in STEPS if step not in explorer.LIVE_STEPS)  # of a model that the page can't compute


def patch_labels(page):
    """The label of every patch for screen readers: its value as text."""
    labels = page.locator("#patches .cell").evaluate_all("cells => cells.map(cell => cell.ariaLabel)")
    return [label.split(": ")[1] for label in labels]


def on_patches(page):
    return [value(text) for text in patch_labels(page)]


def slide(page, step, number):
    """Move a step's slider."""
    page.locator(f"#{step}-slider input").fill(str(number))


def pixels_of(canvas):
    """[red, green, blue, opacity] from 0 to 255 of every pixel of a canvas, row by row."""
    return canvas.evaluate(
        """canvas => {
            const copy = new OffscreenCanvas(canvas.width, canvas.height);  // the page's own isn't made to be read
            const context = copy.getContext("2d", { willReadFrequently: true });
            context.drawImage(canvas, 0, 0);
            const { data } = context.getImageData(0, 0, copy.width, copy.height);
            return Array.from({ length: data.length / 4 }, (_, i) => [...data.subarray(4 * i, 4 * i + 4)]);
        }"""
    )


def unpacked(text, arrangement):
    """The arrays by name that `pack` encoded as this text, given their `layout`."""
    content, arrays, at = zlib.decompress(base64.b64decode(text)), {}, 0
    for name, dtype, shape in arrangement:
        dtype = np.dtype(dtype).newbyteorder("<")
        size = dtype.itemsize * int(np.prod(shape))
        planes = np.frombuffer(content, "uint8", size, at).reshape(dtype.itemsize, -1)
        arrays[name] = np.frombuffer(planes.T.tobytes(), dtype).reshape(shape)
        at += size
    return arrays
