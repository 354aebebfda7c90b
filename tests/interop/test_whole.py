import pytest

from tinyvit.interop import whole
from tinyvit.interop.whole import made_whole


def test_a_file_has_its_name_when_it_is_whole_and_not_before(tmp_path):
    with made_whole(tmp_path / "new" / "file") as place:
        place.write_text("half")
        assert not (tmp_path / "new" / "file").exists()
        place.write_text("whole")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["file"]
    assert (tmp_path / "new" / "file").read_text() == "whole"


def test_a_folder_has_its_name_when_it_is_whole_and_what_was_made_beside_it_comes_along(tmp_path):
    (tmp_path / "plain").mkdir()
    with made_whole(tmp_path / "run") as place:
        place.mkdir()
        (place / "file").write_text("in it")
        (place.parent / "run.data").write_text("beside it")
    assert {path.name for path in tmp_path.iterdir()} == {"plain", "run", "run.data"}
    assert (tmp_path / "run" / "file").read_text() == "in it"
    assert (tmp_path / "run").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_goes_wrong_on_the_way_leaves_nothing(tmp_path, error):
    with pytest.raises(error), made_whole(tmp_path / "run") as place:
        place.mkdir()
        (place / "file").write_text("half")
        raise error
    assert not any(tmp_path.iterdir())


def test_folders_that_were_made_for_it_go_with_it_and_those_that_somebody_uses_stay(tmp_path):
    with pytest.raises(ValueError), made_whole(tmp_path / "a" / "b" / "c" / "run") as place:
        place.write_text("half")
        (tmp_path / "a" / "mine").write_text("mine")
        raise ValueError
    assert [path.relative_to(tmp_path).as_posix() for path in sorted(tmp_path.rglob("*"))] == ["a", "a/mine"]


def test_what_cannot_be_written_is_named_as_it_was_asked_for(tmp_path):
    with pytest.raises(OSError) as error, made_whole(tmp_path / "run") as place:
        (place / "file").write_text("in a folder that isn't there")
    assert str(error.value).startswith(f"{tmp_path / 'run'} can't be written: No such file or directory; nothing of it")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("empty", "empty is there already; choose another place$"),
        ("file/run", "nothing can be made at .*file/run: .*file is no folder"),
        ("new/..", r"new/\.\. names no new file or folder; choose another place$"),
    ],
)
def test_where_nothing_can_be_made_is_refused_before_any_work(tmp_path, name, reason):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match=reason), made_whole(tmp_path / name):
        pytest.fail("has begun")
    assert {path.name for path in tmp_path.iterdir()} == {"empty", "file"}


def test_a_user_who_is_not_known_is_no_home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with made_whole("~nobody-of-that-name/run") as place:
        place.write_text("whole")
    assert (tmp_path / "~nobody-of-that-name" / "run").read_text() == "whole"


def test_of_two_that_make_the_same_the_second_is_refused_and_the_first_stays(tmp_path, monkeypatch):
    """The second comes between the last look and the move."""
    real, looks = whole.check_free, []

    def first_is_faster(path):
        real(path)
        looks.append(path.name)
        if looks == ["run", "run.data", "run"]:
            path.mkdir()
            (path / "file").write_text("first")

    monkeypatch.setattr(whole, "check_free", first_is_faster)
    with pytest.raises(ValueError, match="run is there already"), made_whole(tmp_path / "run") as place:
        place.mkdir()
        (place / "file").write_text("second")
        (place.parent / "run.data").write_text("second")
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert (tmp_path / "run" / "file").read_text() == "first"


@pytest.mark.parametrize("name", ["run", "run.data"])
def test_what_has_appeared_on_the_way_is_not_overwritten(tmp_path, name):
    with pytest.raises(ValueError, match=f"{name} is there already"), made_whole(tmp_path / "run") as place:
        place.write_text("ours")
        (place.parent / "run.data").write_text("ours")
        (tmp_path / name).write_text("theirs")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, "theirs")]
