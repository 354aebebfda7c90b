import re
from pathlib import Path

import pytest

from tinyvit.cli import notebooks as command
from tinyvit.training import run_folder

SERIES, FIRST = Path(__file__).parents[2] / "notebooks", run_folder.FIRST_NOTEBOOK


def bytes_of(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_notebooks_are_copied_with_the_files_that_they_read_and_a_hint_how_to_open_them(succeeds, tmp_path):
    out = succeeds("notebooks")
    lessons = tmp_path / "tinyvit-notebooks"
    copied = bytes_of(lessons)
    for path, content in copied.items():
        assert (SERIES / path).read_bytes() == content
    for pattern in ("*.ipynb", "checkpoint/*", "results/*"):  # as setup.cfg packages them
        assert {path.relative_to(SERIES) for path in SERIES.glob(pattern) if path.is_file()} <= set(copied)
    assert "jupyter lab tinyvit-notebooks/00_tour.ipynb" in out and "pip install 'tinyvit[notebooks]'" in out
    (lessons / FIRST).unlink()
    succeeds("notebooks")
    assert bytes_of(lessons) == copied


def test_every_file_that_a_notebook_names_is_copied_with_it():
    files = {path.as_posix() for path in command.files_of(run_folder.notebooks_folder())}
    text = "".join(source.read_text(encoding="utf-8") for source in SERIES.glob("[0-9][0-9]_*.py"))
    named = set(re.findall(r"`((?:results/|checkpoint/)?[\w-]+\.(?:md|log|txt))`", text))
    shown = re.findall(r"\]\(((?:figures|results)/[\w.-]+)\)", text)
    assert len(shown) >= 3 and "augmentation.md" in named
    assert {"figures/augmentation.png", *named, *shown} <= files


def test_files_that_a_learner_changed_are_kept_and_named_unless_forced(succeeds, refused, tmp_path):
    succeeds("notebooks", "lessons")
    mine = tmp_path / "lessons" / "02_layer_norm.ipynb"
    mine.write_text("my solution")
    (tmp_path / "lessons" / "mine.txt").write_text("a note")
    (tmp_path / "lessons" / "01_images_into_tokens.py").unlink()
    said = "files with other contents are there already: lessons/02_layer_norm.ipynb"
    assert said in refused("notebooks", "lessons")
    succeeds("notebooks", "lessons", "--force")
    assert mine.read_bytes() == (SERIES / mine.name).read_bytes()
    assert (tmp_path / "lessons" / "mine.txt").read_text() == "a note"


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_a_folder_in_the_way_is_named_and_links_to_the_notebooks_are_not_written_through(
    succeeds, refused, tmp_path, force
):
    lessons = tmp_path / "lessons"
    lessons.mkdir()
    (lessons / FIRST).symlink_to(SERIES / FIRST)
    before = (SERIES / FIRST).stat()
    succeeds("notebooks", "lessons", *force)
    assert not (lessons / FIRST).is_symlink() and (SERIES / FIRST).stat() == before
    assert "is a file or a broken link; choose a folder" in refused("notebooks", lessons / "checkpoint" / "config.json")
    (lessons / FIRST).unlink()
    (lessons / FIRST).mkdir()
    assert "Is a directory" in refused("notebooks", "lessons", *force)


def test_an_installation_without_notebooks_says_where_they_are(refused, monkeypatch, tmp_path):
    monkeypatch.setattr(run_folder, "__file__", str(tmp_path / "tinyvit" / "training" / "run_folder.py"))
    monkeypatch.setattr("importlib.metadata.files", lambda name: [])
    assert "this installation has no notebooks" in refused("notebooks", "lessons")
    assert refused("evaluate", "cifar10-cpu").endswith("cifar10-cpu is not a run folder: it doesn't exist\n")
