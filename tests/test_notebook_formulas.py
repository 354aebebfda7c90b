"""Every display formula of the notebooks fits where JupyterLab shows it, measured in JupyterLab itself, offline."""

import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import nbformat
import pytest

pytestmark = [pytest.mark.browser, pytest.mark.full]

FOLDER = Path(__file__).parents[1] / "notebooks"
WAIT = 240  # seconds, for JupyterLab to start and for its first page, which loads all its parts, beside other work
SETTINGS = {
    "@jupyterlab/notebook-extension/tracker": '{"windowingMode": "none"}',          # render all cells, seen or not
    "@jupyterlab/apputils-extension/notification": '{"fetchNews": "false"}',        # no network
}

# The right ends of all parts of each formula, past the right end of the text that it stands in; negative if it fits.
OVERHANGS = """() => [...document.querySelectorAll('mjx-container[display="true"]')].map(formula => {
    const parts = [formula, ...formula.querySelectorAll('*')].map(part => part.getBoundingClientRect())
    const text = formula.closest('.jp-RenderedMarkdown').getBoundingClientRect()
    const inside = parts.filter(part => part.width)
    return Math.max(...inside.map(part => part.right)) - text.right
})"""


def formulas(notebook):
    """The display formulas of a notebook, as they are written."""
    return [
        formula for cell in notebook.cells if cell.cell_type == "markdown"
        for formula in re.findall(r"\$\$.*?\$\$", cell.source, re.DOTALL)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def written():
    """(notebook, formula) of every display formula, in the order of the notebooks."""
    paths = sorted(FOLDER.glob("[0-9][0-9]_*.ipynb"))
    return [(path.stem, formula) for path in paths for formula in formulas(nbformat.read(path, 4))]


@pytest.fixture(scope="module")
def lab(written, tmp_path_factory):
    """The address of a JupyterLab that has one notebook of all the formulas, a cell for each."""
    folder, home = tmp_path_factory.mktemp("notebooks"), tmp_path_factory.mktemp("home")
    cells = [nbformat.v4.new_markdown_cell(formula) for _, formula in written]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), folder / "formulas.ipynb")
    for name, text in SETTINGS.items():
        file = home / "settings" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folders = {name: str(home / "lab") for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")}
    environment = {**os.environ, **folders, "JUPYTERLAB_SETTINGS_DIR": str(home / "settings")}
    environment["JUPYTERLAB_WORKSPACES_DIR"] = str(home / "workspaces")
    options = [f"--port={port}", "--ServerApp.port_retries=0", "--IdentityProvider.token="]
    server = subprocess.Popen(
        [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", *options], cwd=folder, env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    address = f"http://127.0.0.1:{port}/lab/tree/formulas.ipynb"
    try:
        until = time.monotonic() + WAIT
        while not answers(address):
            assert server.poll() is None, server.stdout.read().decode()
            assert time.monotonic() < until, f"JupyterLab has not started in {WAIT} s"
            time.sleep(0.2)
        yield address
    finally:
        server.terminate()
        server.communicate()


def answers(address):
    try:
        return urllib.request.urlopen(address, timeout=WAIT).status == 200
    except OSError:
        return False


def open_formulas(chromium, lab, written, width=1280):
    """The notebook in JupyterLab, with all formulas rendered."""
    page = chromium.new_page(viewport={"width": width, "height": 900})
    page.set_default_timeout(1000 * WAIT)
    page.goto(lab)
    page.wait_for_function(f"document.querySelectorAll('mjx-container[display=\"true\"]').length == {len(written)}")
    return page


@pytest.mark.parametrize("width, with_file_browser", [(1280, True), (768, False)])
def test_every_formula_fits(chromium, lab, written, width, with_file_browser):
    page = open_formulas(chromium, lab, written, width)
    if not with_file_browser:
        page.keyboard.press("Control+b")
        page.locator("#filebrowser").wait_for(state="hidden")
    assert page.locator("#filebrowser").is_visible() == with_file_browser
    overhangs = page.evaluate(OVERHANGS)
    too_wide = [(round(by), *where) for by, where in zip(overhangs, written, strict=True) if by > 0]
    page.close()
    assert not too_wide, "\n".join(f"{by} px too wide in {name}:\n{formula}" for by, name, formula in too_wide)


def test_a_formula_that_is_too_wide_is_found(chromium, lab, written):
    page = open_formulas(chromium, lab, written)
    page.evaluate("document.querySelector('mjx-container[display=\"true\"] > *').style.paddingLeft = '2000px'")
    assert page.evaluate(OVERHANGS)[0] > 0
    page.close()
