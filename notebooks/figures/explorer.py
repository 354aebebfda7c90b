"""explorer.gif: the explorer at work, taken from the page itself in Chromium.

    python notebooks/figures/explorer.py

A digit is drawn, and attention and probabilities follow; a head is switched off; the gradient is followed back to the
pixels. The model is that of the README's first command, `tinyvit train digits`, whose run comes with tinyvit. Needs the
extra `browser` and Chromium.
"""

import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image, ImageDraw
from playwright.sync_api import sync_playwright

FOLDER = Path(__file__).resolve().parent
SCREEN = {"width": 1240, "height": 900}
WIDTH = 840      # pixels of the animation
LARGEST = 2_000_000
COLOURS = 200
# Pixels of an 8×8 digit in the order in which they are drawn: a 6.
SIX = [(0, 4), (1, 3), (2, 2), (3, 2), (4, 2), (5, 2), (6, 2), (7, 3), (7, 4), (6, 5), (5, 5), (4, 4), (4, 3)]


class Film:
    """Screenshots of a page with the pointer drawn in, and how long each is shown."""

    def __init__(self, page):
        self.page, self.frames, self.seconds, self.pointer = page, [], [], (SCREEN["width"] / 2, SCREEN["height"] / 2)

    def shoot(self, seconds):
        shot = Image.open(io.BytesIO(self.page.screenshot())).convert("RGB")
        x, y = self.pointer
        ImageDraw.Draw(shot).ellipse((x - 8, y - 8, x + 8, y + 8), fill="#ffb000", outline="#000000", width=2)
        self.frames.append(shot.resize((WIDTH, round(WIDTH * shot.height / shot.width)), Image.Resampling.LANCZOS))
        self.seconds.append(seconds)

    def move(self, x, y):
        self.page.mouse.move(x, y)
        self.pointer = x, y

    def move_to(self, locator):
        box = locator.bounding_box()
        self.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)

    def click(self, locator, seconds):
        self.move_to(locator)
        self.page.mouse.down()
        self.page.mouse.up()
        self.shoot(seconds)

    def save(self, path):
        """Write the animation, all frames with the colours of one palette, so that only what changes is stored."""
        palette = Image.new("RGB", (WIDTH, sum(frame.height for frame in self.frames[::3])))
        for i, frame in enumerate(self.frames[::3]):
            palette.paste(frame, (0, i * frame.height))
        palette = palette.quantize(COLOURS, method=Image.Quantize.MEDIANCUT)
        frames = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in self.frames]
        frames[0].save(
            path, save_all=True, append_images=frames[1:], duration=[round(1000 * s) for s in self.seconds], loop=0,
            optimize=True,
        )  # fmt: skip


def play(film, page):
    steps = page.locator("nav button")
    film.shoot(1)
    film.click(steps.nth(3), 1)                                            # attention
    for patch in (0, 1, 5, 6, 10, 14):
        film.move_to(page.locator("#patches .cell").nth(patch))
        film.shoot(0.4)
    film.click(page.locator(".chip").last, 1)                              # the mean, which the head reads
    film.click(page.locator("#draw"), 0.6)
    film.click(page.locator("#clear"), 0.6)
    box = page.locator("#pixels").bounding_box()
    for i, (row, column) in enumerate(SIX):
        film.move(box["x"] + (column + 0.5) * box["width"] / 8, box["y"] + (row + 0.5) * box["height"] / 8)
        if i == 0:
            page.mouse.down()
        film.shoot(0.25)
    page.mouse.up()
    film.shoot(1)
    film.click(page.locator("#draw"), 1)
    for head in (9, 8):  # heads 1 and 0 of block 2; without head 0 the probabilities change most
        film.click(page.locator("#heads .cell").nth(head), 0.8)
    film.click(page.locator("#head-on"), 1.5)
    film.click(page.locator("#all-on"), 1)
    for step in (6, 8, 9):                                                 # loss, gradients of attention and pixels
        film.click(steps.nth(step), 1.6)


def main():
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        inspect = [sys.executable, "-m", "tinyvit", "inspect", "digits", "--html", "--image", "241"]
        subprocess.run(inspect, check=True, cwd=folder)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_context(viewport=SCREEN, color_scheme="light", reduced_motion="reduce").new_page()
        page.goto((Path(folder) / "inspect-digits.html").as_uri())
        page.locator("#guesses .number").first.wait_for()
        film = Film(page)
        play(film, page)
        film.save(FOLDER / "explorer.gif")
        browser.close()
    size = (FOLDER / "explorer.gif").stat().st_size
    print(f"{len(film.frames)} frames, {size / 1e6:.2f} MB")
    if size >= LARGEST:
        sys.exit(f"expected less than {LARGEST / 1e6:.0f} MB; take fewer frames or colours")


if __name__ == "__main__":
    main()
