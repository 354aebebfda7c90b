"""The book: it builds without a warning, can be read from a file without a network, and has everything in it."""

import inspect
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tinyvit import functional as F

ROOT = Path(__file__).parents[1]
NOTEBOOKS = ROOT / "notebooks"
OPERATIONS = {name: op for name, op in vars(F).items() if hasattr(op, "reference")}
WIDTHS = (1280, 390)


def test_every_file_of_operations_is_in_one_group(monkeypatch):
    monkeypatch.syspath_prepend(NOTEBOOKS)
    from book import source

    grouped = [name for names in source.OPERATIONS.values() for name in names.split()]
    present = [path.stem for path in (ROOT / "tinyvit" / "functional").glob("*.py") if path.stem != "__init__"]
    assert sorted(grouped) == sorted(present), "notebooks/book/source.py: OPERATIONS has the groups"


# -- what Sphinx makes of it ------------------------------------------------------------------------------------------


class Page:
    """The links, the anchors, what is loaded, the text and the code of a page."""

    def __init__(self, path):
        from bs4 import BeautifulSoup  # as furo does

        page = BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
        self.path, self.text, self.code = path, page.get_text(), [block.get_text() for block in page("pre")]
        self.links, self.anchors = [link["href"] for link in page("a", href=True)], {tag["id"] for tag in page(id=True)}
        self.loaded = [link["href"] for link in page("link", rel=["stylesheet", "icon"])]
        self.loaded += [tag["src"] for tag in page(src=True)]

    def place(self, link):
        """(file, anchor) that a relative link of this page leads to."""
        parts = urlsplit(link)
        path = (self.path.parent / unquote(parts.path)).resolve() if parts.path else self.path
        return path, unquote(parts.fragment)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("book") / "site"
    # Fails at a warning and at a link that leads nowhere.
    command = [sys.executable, "-m", "sphinx", "-q", "-E", "-n", "-W", "--keep-going", NOTEBOOKS, folder]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site):
    """Every page by its path."""
    return {path: Page(path) for path in sorted(site.rglob("*.html"))}


@pytest.mark.book
def test_every_notebook_and_guide_page_is_in_the_book_and_in_its_contents(site, pages):
    patterns = ("[0-9][0-9]_*.ipynb", "guide/*.md", "augmentation.md")
    written = [path for pattern in patterns for path in NOTEBOOKS.glob(pattern)]
    wanted = {site / path.relative_to(NOTEBOOKS).with_suffix(".html") for path in written}
    front = pages[site / "index.html"]
    assert len(wanted) > 25 and wanted <= {front.place(link)[0] for link in front.links}


@pytest.mark.book
def test_every_link_leads_to_a_page_and_a_place_on_it(pages):
    wrong = []
    for page in pages.values():
        for link in page.links:
            if re.match(r"(https|mailto):", link):
                continue
            path, anchor = page.place(link)
            if not path.is_file() or (path.suffix == ".html" and anchor not in {"", "top", *pages[path].anchors}):
                wrong.append(f"{page.path.name}: {link}")
    assert not wrong


@pytest.mark.book
def test_nothing_is_loaded_from_elsewhere(site, pages):
    for page in pages.values():
        for link in page.loaded:
            assert page.place(link)[0].is_file(), f"{page.path.name} loads {link}"
    for sheet in site.rglob("*.css"):
        loaded = re.findall(r"url\(\s*['\"]?([^'\")]*)|@import", sheet.read_text(encoding="utf-8"))
        assert all(re.match(r"data:|#", link) or (sheet.parent / link).is_file() for link in loaded), sheet


@pytest.mark.book
@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_each_operation_is_shown_with_its_code_and_what_it_says(site, pages, name):
    op = OPERATIONS[name].reference
    page = pages[site / "source" / "files" / "functional" / f"{op.__module__.rpartition('.')[2]}.html"]
    assert name in page.anchors
    code = re.sub(r'\n    """.*?"""(?=\n)', "", inspect.getsource(op), count=1, flags=re.DOTALL)
    assert any(code.strip() in shown for shown in page.code)
    said = " ".join(re.findall(r"\w+", inspect.getdoc(op).partition("\n\n")[0]))
    assert said.removesuffix(" Derived in notebooks") in " ".join(re.findall(r"\w+", page.text))


@pytest.mark.book
def test_formulas_and_the_functions_that_compute_them_link_to_each_other(site, pages):
    notebook, operation = pages[site / "03_attention.html"], pages[site / "source/files/functional/softmax.html"]
    assert (operation.path, "softmax_backward") in {notebook.place(link) for link in notebook.links}
    assert notebook.path in {operation.place(link)[0] for link in operation.links}
    assert 'class="formula"><math display="block">' in operation.path.read_text(encoding="utf-8")


# -- read in Chromium, from a file ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reader(chromium):
    """A page of a browser, and what it has loaded from elsewhere or complained about."""
    page, complaints = chromium.new_page(), []
    page.on("request", lambda request: request.url.startswith(("file:", "data:")) or complaints.append(request.url))
    page.on("console", lambda message: message.type in ("warning", "error") and complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page, complaints
    page.close()


# What is wider than its place: the window, the box of a formula; and formulas that are cut at top or bottom.
OVERHANGS = """() => [
    ["page", document.documentElement.scrollWidth - innerWidth],
    ...[...document.querySelectorAll(".formula")].flatMap(box => {
        const [of, formula] = [box, box.firstElementChild].map(part => part.getBoundingClientRect())
        const text = box.textContent.slice(0, 60)
        return [box.scrollWidth - box.clientWidth, formula.right - of.right, of.left - formula.left,
            formula.bottom - of.bottom, of.top - formula.top].map(by => [text, by])
    }),
].filter(([_, by]) => by > 0)"""


@pytest.mark.full
@pytest.mark.book
def test_every_page_and_every_formula_fits(reader, pages):
    page, complaints = reader
    complaints.clear()
    wrong, count = {}, 0
    for path in pages:
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            if width == WIDTHS[0]:
                page.goto(path.as_uri())
            page.evaluate("document.fonts.ready.then(() => new Promise(requestAnimationFrame))")
            count += page.locator(".formula").count()
            if overhangs := page.evaluate(OVERHANGS):
                wrong[path.name, width] = overhangs
    assert not wrong and not complaints
    assert count > 300 * len(WIDTHS)


@pytest.mark.book
@pytest.mark.parametrize("width", [1400, 1920])
def test_no_line_of_code_is_cut_at_the_right_edge(reader, site, width):
    page, _ = reader
    page.set_viewport_size({"width": width, "height": 900})
    cut = "() => [...document.querySelectorAll('pre')].filter(code => code.scrollWidth > code.clientWidth).length"
    for path in [*site.glob("[0-9]*.html"), site / "guide/python.html", *site.glob("source/files/functional/a*.html")]:
        page.goto(path.as_uri())
        assert page.locator("pre").count() > 3 and page.evaluate(cut) == 0, path.name


@pytest.mark.book
def test_the_search_finds_each_operation_and_its_backward(reader, site):
    page, complaints = reader
    complaints.clear()
    page.goto((site / "search.html").as_uri() + "?q=softmax")
    for name, op in OPERATIONS.items():
        module = op.reference.__module__.rpartition(".")[2]
        page.evaluate("name => Search.performSearch(name)", name)
        page.locator(f"#search-results a[href='source/files/functional/{module}.html#{name}']").first.wait_for()
    assert len(OPERATIONS) > 80 and not complaints
