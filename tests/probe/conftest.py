"""Headless Chromium for tests marked `browser`: Debian's package, driven by Playwright."""

import contextlib
from typing import NamedTuple

import pytest
from pages import DIGITS, page_of
from strategies import redrawn

from tinyvit import ViT, probe


class Made(NamedTuple):
    """A page of four images, the trace of each, and their labels."""

    html: str
    traces: list[probe.Trace]
    labels: list[int]


@pytest.fixture
def browse(chromium, tmp_path):
    """Opens each page in its own context: browse(html, **context) returns Playwright's, drawn; `link` begins with #.

    By the end of the test, nothing may have been logged, raised, or requested except the file itself.
    """
    with contextlib.ExitStack() as stack:
        seen = []

        def open_page(html, link="", **context):
            file = tmp_path / f"page-{len(seen)}.html"
            file.write_text(html, encoding="utf-8")
            page = stack.enter_context(chromium.new_context(**context)).new_page()
            events = []
            seen.append((f"request {file.as_uri()}", events))
            page.on("console", lambda message: events.append(f"{message.type} {message.text}"))
            page.on("pageerror", lambda error: events.append(f"error {error}"))
            page.on("request", lambda request: events.append(f"request {request.url}"))
            page.on("websocket", lambda socket: events.append(f"socket {socket.url}"))
            page.set_default_timeout(10_000)
            page.goto(file.as_uri() + link)
            if context.get("java_script_enabled", True):  # it is loaded before its numbers are unpacked and drawn
                page.locator("nav [aria-current=step]").wait_for(state="attached")
            return page

        yield open_page
        for file, events in seen:
            assert events == [file]


@pytest.fixture(scope="session")
def made():
    """`Made` from a model like that of the digits, with random weights."""
    model = redrawn(ViT(DIGITS))
    page, images, labels = page_of(model, 4)
    traces = [probe.trace(model, images[b : b + 1], labels[b : b + 1]) for b in range(4)]
    return Made(page.html, traces, labels.tolist())


@pytest.fixture
def seen(made):
    """The trace of the image that is shown first."""
    return made.traces[0]


@pytest.fixture
def page(browse, made):
    return browse(made.html, viewport={"width": 1280, "height": 1000})


@pytest.fixture
def expect():
    from playwright.sync_api import expect

    return expect
