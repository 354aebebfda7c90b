"""`tinyvit inspect RUN --html FILE`; the contents of the page are tested in tests/probe/test_explorer.py."""

import json
import re
import shutil

import pytest

from tinyvit import data
from tinyvit import functional as F
from tinyvit.probe.explorer import choose
from tinyvit.training.tasks.classification import logits_of
from tinyvit.training.trained import load_trained


def names_in(path):
    """The names of the images in a page."""
    text = re.search(r'<script type="application/json" id="numbers">(.*?)</script>', path.read_text("utf-8"), re.S)[1]
    return [image["name"] for image in json.loads(text)["images"]]


@pytest.fixture
def chosen(run):
    """The `count` test images that the page shows by default."""
    model, test = load_trained(run, "cpu").model, data.digits().test
    probabilities = F.softmax(logits_of(model, test))[0]
    return lambda count: choose(probabilities, test.labels, count)


def test_a_page_of_chosen_images_is_written_and_nothing_else(tinyvit, run, chosen, tmp_path):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    status, out, err = tinyvit("inspect", run, "--html", "explorer.html")
    assert (status, err) == (0, "")
    page = tmp_path / "explorer.html"
    assert [path.name for path in tmp_path.iterdir()] == ["explorer.html"]
    assert names_in(page) == [f"test image {row}" for row in chosen(12)]
    assert out == (f"written to explorer.html: {page.stat().st_size / 1e6:.1f} MB, "
                   f"test images {', '.join(map(str, chosen(12)))}\n")  # fmt: skip
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_the_requested_image_comes_first_and_an_older_page_is_replaced(tinyvit, run, chosen, tmp_path):
    (tmp_path / "page.htm").write_text("old")
    status, out, err = tinyvit("inspect", run, "--html", "page.htm", "--image", "359", "--images", "4", "--json")
    assert (status, err) == (0, "")
    expected = [359, *chosen(4)[:3]]
    assert json.loads(out) == {
        "run": str(run), "html": "page.htm", "bytes": (tmp_path / "page.htm").stat().st_size, "images": expected,
        "left_out": [],
    }  # fmt: skip
    assert names_in(tmp_path / "page.htm") == [f"test image {row}" for row in expected]


def test_no_image_is_in_the_page_twice(tinyvit, run, chosen):
    third = chosen(5)[2]
    status, out, _ = tinyvit("inspect", run, "--html", "a.html", "--image", third, "--images", "5", "--json")
    assert status == 0
    assert json.loads(out)["images"] == [third, *(row for row in chosen(5) if row != third)]


def test_images_that_do_not_fit_into_the_page_are_named(tinyvit, run, chosen, monkeypatch):
    from tinyvit.cli import page

    room = json.loads(tinyvit("inspect", run, "--html", "a.html", "--images", "3", "--json")[1])["bytes"]
    explorer = page.explorer
    monkeypatch.setattr(page, "explorer", lambda *args, **kwargs: explorer(*args, **kwargs, largest=room))
    status, out, err = tinyvit("inspect", run, "--html", "a.html", "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert (found["bytes"], found["images"], found["left_out"]) == (room, chosen(12)[:3], chosen(12)[3:])
    _, out, _ = tinyvit("inspect", run, "--html", "a.html")
    assert out.endswith(f"these test images don't fit in the page: {', '.join(map(str, chosen(12)[3:]))}\n")


# -- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("arguments", "said"), [
    (["--html", "page.txt"], "expected a file for the page that ends in .html, got --html 'page.txt'"),
    (["--html", ""], "expected a file for the page that ends in .html, got --html ''"),
    (["--html", "folder.html"], "folder.html is a folder; name a file in it"),
    (["--html", "nowhere/a.html"], "there is no folder nowhere for the page; make it first"),
    (["--html", "file/a.html"], "there is no folder file for the page"),
    (["--html", "x" * 300 + ".html"], "File name too long"),
    (["--html", "a.html", "--image", "360"], "there is no test image 360; there are images 0 to 359"),
    (["--html", "a.html", "--image", "-1"], "there is no test image -1; there are images 0 to 359"),
    (["--html", "a.html", "--image", "mine.png"], "expected a number, got --image 'mine.png'"),
    (["--html", "a.html", "--images", "0"], "expected at least 1 image in the page, got --images 0"),
    (["--html", "a.html", "--layer", "0"], "--layer is about pictures"),
    (["--html", "a.html", "--head", "0"], "--head is about pictures"),
    (["--html", "a.html", "--class", "7"], "--class is about pictures"),
    (["--html", "a.html", "--out", "there"], "--out is about pictures"),
    (["--html"], "--html"),
])  # fmt: skip
def test_bad_options_of_a_page_are_refused_and_no_file_is_changed(refused, run, tmp_path, arguments, said):
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "file").write_text("mine")
    (tmp_path / "a.html").write_text("mine")
    assert said in refused("inspect", run, *arguments)
    assert {path.name for path in tmp_path.iterdir()} == {"folder.html", "file", "a.html"}
    assert (tmp_path / "file").read_text() == (tmp_path / "a.html").read_text() == "mine"


def test_a_run_whose_data_have_gone_is_refused(refused, run, tmp_path):
    own = shutil.copytree(run, tmp_path / "own")
    config = json.loads((own / "config.json").read_text())
    (own / "config.json").write_text(json.dumps({**config, "dataset": "folder", "data_dir": "gone"}))
    assert "gone" in refused("inspect", own, "--html", "a.html")


def test_a_model_too_large_for_a_page_is_refused(refused, run, tmp_path, monkeypatch):
    from tinyvit.cli import page

    explorer = page.explorer
    monkeypatch.setattr(page, "explorer", lambda *args, **kwargs: explorer(*args, **kwargs, largest=1000))
    said = refused("inspect", run, "--html", "a.html")
    assert "a page with one image of this model would have" in said and not (tmp_path / "a.html").exists()
