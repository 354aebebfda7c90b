import re
from pathlib import Path

import pytest

from tinyvit.cli import notebooks as command

SERIES = command.series()
HERE = Path(__file__).parents[2] / "notebooks"


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_notebooks_are_copied_with_the_files_that_they_read_and_a_hint_how_to_open_them(tinyvit, tmp_path):
    status, out, err = tinyvit("notebooks", "lessons")
    assert (status, err) == (0, "")
    copied = contents(tmp_path / "lessons")
    assert {path.name for path in HERE.glob("*.ipynb")} == {path.name for path in copied if path.suffix == ".ipynb"}
    for path, content in copied.items():
        assert (HERE / path).read_bytes() == content
    assert Path("checkpoint/model.safetensors") in copied and Path("results/bench.txt") in copied
    assert "jupyter lab lessons/00_tour.ipynb" in out and "pip install 'tinyvit[notebooks]'" in out


def test_every_file_that_a_notebook_names_is_copied_with_it():
    files = {path.as_posix() for path in command.files_of(SERIES)}
    text = "".join(source.read_text(encoding="utf-8") for source in SERIES.glob("[0-9][0-9]_*.py"))
    named = set(re.findall(r"`((?:results/|checkpoint/|checkpoint-cifar10/)?[\w-]+\.(?:md|log|txt))`", text))
    assert "augmentation.md" in named and named <= files
    assert "figures/augmentation.png" in (SERIES / "augmentation.md").read_text(encoding="utf-8")
    texts = "".join(path.read_text(encoding="utf-8") for path in SERIES.glob("[0-9]*.py"))
    shown = re.findall(r"\]\(((?:figures|results)/[\w.-]+)\)", texts)
    assert len(shown) >= 3 and {"figures/augmentation.png", *shown} <= files


def test_without_a_folder_the_default_one_is_used(tinyvit, tmp_path):
    status, _, _ = tinyvit("notebooks")
    assert status == 0 and (tmp_path / "tinyvit-notebooks" / command.FIRST).is_file()


def test_copying_again_changes_nothing_and_brings_back_what_was_removed(tinyvit, tmp_path):
    tinyvit("notebooks", "lessons")
    before = contents(tmp_path / "lessons")
    (tmp_path / "lessons" / command.FIRST).unlink()
    status, _, _ = tinyvit("notebooks", "lessons")
    assert status == 0 and contents(tmp_path / "lessons") == before


def test_files_that_a_learner_changed_are_kept_and_named_unless_forced(tinyvit, refused, tmp_path):
    tinyvit("notebooks", "lessons")
    mine = tmp_path / "lessons" / "02_layer_norm.ipynb"
    mine.write_text("my solution")
    (tmp_path / "lessons" / "mine.txt").write_text("a note")
    (tmp_path / "lessons" / "01_images_into_tokens.py").unlink()
    assert "1 of the files in lessons are not as they come, and are kept: 02_layer_norm.ipynb" in refused(
        "notebooks", "lessons"
    )
    assert mine.read_text() == "my solution" and not (tmp_path / "lessons" / "01_images_into_tokens.py").exists()
    status, _, _ = tinyvit("notebooks", "lessons", "--force")
    assert status == 0 and mine.read_bytes() == (SERIES / mine.name).read_bytes()
    assert (tmp_path / "lessons" / "mine.txt").read_text() == "a note"


def test_a_file_in_place_of_the_folder_and_the_source_itself_are_refused(refused, tmp_path):
    (tmp_path / "file").write_text("")
    assert "expected a folder to copy the notebooks to, got file" in refused("notebooks", "file")
    assert "is where the notebooks come from" in refused("notebooks", SERIES)


@pytest.mark.parametrize(("blocked", "folder", "said"), [
    ("checkpoint", False, "lessons/checkpoint is in the way of lessons/checkpoint/"),
    ("00_tour.ipynb", True, "lessons/00_tour.ipynb is in the way of lessons/00_tour.ipynb"),
])  # fmt: skip
@pytest.mark.parametrize("force", [(), ("--force",)])
def test_if_a_file_is_in_the_way_nothing_is_copied(refused, tmp_path, blocked, folder, said, force):
    place = tmp_path / "lessons" / blocked
    place.mkdir(parents=True) if folder else (place.parent.mkdir(), place.touch())
    assert said in refused("notebooks", "lessons", *force)
    assert list((tmp_path / "lessons").rglob("*")) == [place]


def test_links_to_the_notebooks_are_not_written_through(refused, tmp_path):
    (tmp_path / "lessons").mkdir()
    (tmp_path / "lessons" / command.FIRST).symlink_to(SERIES / command.FIRST)
    assert "lessons/00_tour.ipynb is where the notebooks come from" in refused("notebooks", "lessons", "--force")
    assert len(list((tmp_path / "lessons").iterdir())) == 1


def test_an_installation_without_notebooks_says_where_they_are(refused, monkeypatch, tmp_path):
    monkeypatch.setattr(command, "__file__", str(tmp_path / "tinyvit" / "cli" / "notebooks.py"))
    monkeypatch.setattr("importlib.metadata.files", lambda name: [])
    assert "this installation has no notebooks" in refused("notebooks", "lessons")


@pytest.mark.parametrize("pattern", ["*.ipynb", "checkpoint/*", "results/*"])
def test_the_copied_files_are_those_that_setup_cfg_packages(pattern):
    files = {str(path) for path in command.files_of(SERIES)}
    assert {str(path.relative_to(HERE)) for path in HERE.glob(pattern) if path.is_file()} <= files
