import errno
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from tinyvit.files import create, expand_path, hold_lock, identity, tidy, verified_manifest, write, write_with_manifest


def contents(path):
    return {file.name: file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_a_leading_tilde_is_the_home_and_elsewhere_part_of_the_name(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert expand_path("~/images") == tmp_path / "images" and expand_path("~") == tmp_path
    assert expand_path("images/~") == Path("images/~") and expand_path(Path("~") / "images") == tmp_path / "images"


# -- locks ------------------------------------------------------------------------------------------------------------


def test_a_held_lock_is_refused_and_free_once_its_block_ends(tmp_path):
    with hold_lock(tmp_path / "lock") as first:
        assert first == identity(tmp_path / "lock")
        with pytest.raises(BlockingIOError), hold_lock(tmp_path / "lock", Mock(side_effect=BlockingIOError)):
            pass
        (tmp_path / "lock").unlink()
        assert first != identity(tmp_path / "lock")
        with hold_lock(tmp_path / "lock", Mock(side_effect=BlockingIOError)) as second:
            assert first != second
    with hold_lock(tmp_path / "lock", Mock(side_effect=BlockingIOError)):
        pass


def test_a_lock_where_none_can_be_made_is_an_error_and_makes_no_folder(tmp_path):
    for folder in (tmp_path / "removed", Path("/proc")):
        with pytest.raises(OSError), hold_lock(folder / "lock"):
            pass
    assert not (tmp_path / "removed").exists()


# -- writing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_says_what_to_do(tmp_path, monkeypatch, failing):
    path = tmp_path / "summary.json"
    write(path, b"old")

    monkeypatch.setattr(os, failing, Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(OSError, match="summary.json can't be written: No space left.*: make room or choose"):
        write(path, b"new and longer")
    assert contents(tmp_path) == {"summary.json": b"old"}


def test_a_folder_gets_its_name_once_it_is_complete_along_with_files_beside_it(tmp_path):
    (tmp_path / "plain").mkdir()
    with create(tmp_path / "new" / "run") as place:
        place.mkdir()
        (place / "file").write_text("in it")
        (place.parent / "run.data").write_text("beside it")
        assert not (tmp_path / "new" / "run").exists()
    assert contents(tmp_path / "new") == {"file": b"in it", "run.data": b"beside it"}
    assert (tmp_path / "new" / "run").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failure_on_the_way_leaves_nothing(tmp_path, error):
    with pytest.raises(error), create(tmp_path / "run") as place:
        place.mkdir()
        (place / "file").write_text("half")
        raise error
    assert not any(tmp_path.iterdir())


def test_an_unwritable_path_is_named_as_it_was_given(tmp_path, monkeypatch):
    match = f"^{tmp_path / 'run'} can't be written: No such file or directory; nothing of it is left"
    with pytest.raises(OSError, match=match), create(tmp_path / "run") as place:
        (place / "file").write_text("in a folder that isn't there")
    assert not any(tmp_path.iterdir())
    monkeypatch.setattr("tinyvit.files.hidden_folder", Mock(side_effect=OSError(errno.EACCES, "Permission denied")))
    with pytest.raises(OSError, match=f"^{tmp_path / 'x'} can't be written: Permission denied; "):
        write(tmp_path / "x", b"")
    with pytest.raises(ValueError, match=r"gone was removed while it was in use; summary\.json can't be saved"):
        write(tmp_path / "gone" / "summary.json", b"")


@pytest.mark.parametrize("name", ["run", "run.data"])
def test_a_place_that_is_taken_is_refused_before_any_work_and_one_taken_meanwhile_at_the_end(tmp_path, name):
    with pytest.raises(ValueError, match="already; choose another place$"), create(tmp_path):
        pytest.fail("has begun")
    with pytest.raises(ValueError, match=f"{name} is there already"), create(tmp_path / "run") as place:
        place.write_text("ours")
        (place.parent / "run.data").write_text("ours")
        (tmp_path / name).write_text("theirs")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, "theirs")]


WRITE_UNTIL_KILLED = """
import os, sys, pathlib
from tinyvit.files import replace_file
with replace_file(pathlib.Path(sys.argv[1])) as file:
    file.write(b"half"); file.flush(); os.kill(os.getpid(), 9)
"""


@pytest.mark.end_to_end
def test_a_killed_writer_leaves_no_file_and_what_it_had_begun_is_tidied_away(tmp_path):
    assert subprocess.run([sys.executable, "-c", WRITE_UNTIL_KILLED, str(tmp_path / "x")]).returncode == -9
    assert len(list(tmp_path.iterdir())) == 1 and not (tmp_path / "x").exists()
    tidy(tmp_path)
    assert not any(tmp_path.iterdir())


# -- manifests --------------------------------------------------------------------------------------------------------

FILES = {"a.bin": b"one two three", "b.bin": b""}


@pytest.fixture
def manifest(tmp_path):
    write_with_manifest(tmp_path / "m.json", FILES, {"step": 7})
    return tmp_path / "m.json"


def test_a_manifest_lists_what_was_saved_with_it_and_names_what_is_missing(manifest):
    content = verified_manifest(manifest)
    assert content["step"] == 7 and content["files"]["a.bin"]["bytes"] == 13
    assert contents(manifest.parent).keys() == {"m.json", *FILES}
    (manifest.parent / "a.bin").unlink()
    with pytest.raises(ValueError, match=r"a\.bin is missing"):
        verified_manifest(manifest)


def test_every_truncation_and_a_flipped_bit_in_every_byte_of_a_manifest_are_noticed(manifest):
    whole = manifest.read_bytes()
    for length in range(len(whole) - 1):  # nothing is lost without its last newline
        with pytest.raises(ValueError, match=r"m\.json is damaged or no manifest"):
            read_from(manifest, whole[:length])
    as_it_was = read_from(manifest, whole)
    for position in range(len(whole)):
        changed = bytearray(whole)
        changed[position] ^= 1 << position % 8
        try:
            content = read_from(manifest, bytes(changed))
        except ValueError:
            continue
        assert content == as_it_was  # white space


def read_from(manifest, content):
    manifest.write_bytes(content)
    return verified_manifest(manifest)


@pytest.mark.parametrize("content", ["[]", "{}", "null", '{"sha256": 1, "format": 1}', '{"format": 9, "sha256": ""}',
                                     "[" * 100_000, '{"format": 1, "sha256": "", "files": 3}'])  # fmt: skip
def test_json_of_another_kind_is_not_a_manifest(tmp_path, content):
    with pytest.raises(ValueError, match=r"m\.json is damaged or no manifest: \w"):
        read_from(tmp_path / "m.json", content.encode())


def test_while_files_are_being_replaced_there_is_no_manifest_of_the_old_ones(manifest, monkeypatch):
    monkeypatch.setattr(os, "replace", Mock(side_effect=OSError))
    with pytest.raises(OSError):
        write_with_manifest(manifest, {"a.bin": b"new"})
    assert contents(manifest.parent) == FILES  # no manifest, no temporary file, nothing damaged
