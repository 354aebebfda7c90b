"""Hypothesis profiles, and which tests need a GPU.

By default, each property gets 30 random examples, new ones in every run. In CI the examples are the same in every run,
so that a result changes only if the code does: 30, or 20 ("few") on the pretended GPU and in several processes. "many"
are 200.
"""

import gc
import os
import shutil
import signal

if "PYTEST_XDIST_WORKER" in os.environ:  # one of several processes that share the cores: `pytest -n`
    # Set before NumPy, SciPy and PyTorch load a library each, and for the processes that tests start.
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

import pytest
from hypothesis import settings

from tinyvit.backend import why_no_gpu

settings.register_profile("default", max_examples=30, deadline=None)
settings.register_profile("many", max_examples=200, deadline=None)
settings.register_profile("ci", max_examples=30, deadline=None, derandomize=True, print_blob=True)
settings.register_profile("few", max_examples=20, deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else os.environ.get("HYPOTHESIS_PROFILE", "default"))

# A shell starts a command in the background with Ctrl-C ignored, `nohup` one with the end of the terminal ignored;
# processes that the tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(config, items):
    """Leave out the tests marked `gpu` where none works."""
    out = [item for item in items if item.get_closest_marker("gpu")]
    if out and why_no_gpu() is not None:
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if item not in set(out)]


def pytest_collection_finish():
    gc.freeze()  # what stays until the end isn't searched by every gc.collect()


@pytest.fixture(scope="session", autouse=True)
def curves_drawn_once():
    """Only the first training of each kind draws its curves, which takes as long as a tiny training."""
    from tinyvit.training import curves

    draw, drawn = curves.draw_curves, {}

    def once(histories, task, names=None):
        if (kind := (len(histories), *(names or task.columns))) not in drawn:
            drawn[kind] = draw(histories, task, names)
        return drawn[kind]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curves, "draw_curves", once)
        yield


@pytest.fixture(scope="session")
def chromium():
    """One for all tests of a process, in which Playwright can be started once at a time."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium")
    assert path, "these tests need Chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()
