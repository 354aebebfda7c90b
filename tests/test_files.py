import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyvit import files
from tinyvit.files import (
    expanded,
    hidden_folder,
    making,
    read_text,
    replacing,
    tidy,
    try_lock,
    verified_manifest,
    write,
    write_manifest,
    write_with_manifest,
)  # fmt: skip


def test_a_leading_tilde_is_the_home_and_elsewhere_part_of_the_name(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert expanded("~/images") == tmp_path / "images" and expanded("~") == tmp_path
    assert expanded("images/~") == Path("images/~") and expanded(Path("~") / "images") == tmp_path / "images"


def test_a_tilde_with_an_unknown_user_is_not_expanded():
    assert expanded("~nobody-of-this-name/images") == Path("~nobody-of-this-name/images")


# -- locks ------------------------------------------------------------------------------------------------------------

HOLD = "import sys; from tinyvit.files import try_lock; f = open(sys.argv[1], 'a'); print(try_lock(f)); input()"


def test_a_held_lock_is_refused_and_free_once_its_file_is_closed(tmp_path):
    with (tmp_path / "lock").open("a") as first, (tmp_path / "lock").open("a") as second:
        assert try_lock(first) and not try_lock(second)
        first.close()
        assert try_lock(second)


@pytest.mark.end_to_end
def test_the_lock_of_a_process_that_was_killed_is_free(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "True\n"
        with (tmp_path / "lock").open("a") as file:
            assert not try_lock(file)
            process.kill()
            process.wait()
            assert try_lock(file)


# -- writing ----------------------------------------------------------------------------------------------------------


def contents(path):
    return {file.name: file.read_bytes() for file in path.rglob("*") if file.is_file()}


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch, failing):
    path = tmp_path / "summary.json"
    write(path, b"old")

    def fail(*arguments):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(OSError, match="no space"):
        write(path, b"new and longer")
    assert path.read_bytes() == b"old"


def test_a_write_replaces_the_file_and_leaves_nothing_else(tmp_path):
    for content in (b"old", b"new"):
        write(tmp_path / "summary.json", content)
    assert contents(tmp_path) == {"summary.json": b"new"}


def test_a_file_gets_its_name_once_it_is_complete_and_not_before(tmp_path):
    with making(tmp_path / "new" / "file") as place:
        place.write_text("half")
        assert not (tmp_path / "new" / "file").exists()
        place.write_text("whole")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["file"]
    assert (tmp_path / "new" / "file").read_text() == "whole"


def test_a_folder_gets_its_name_once_it_is_complete_along_with_files_beside_it(tmp_path):
    (tmp_path / "plain").mkdir()
    with making(tmp_path / "run") as place:
        place.mkdir()
        (place / "file").write_text("in it")
        (place.parent / "run.data").write_text("beside it")
    assert {path.name for path in tmp_path.iterdir()} == {"plain", "run", "run.data"}
    assert (tmp_path / "run" / "file").read_text() == "in it"
    assert (tmp_path / "run").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failure_on_the_way_leaves_nothing(tmp_path, error):
    with pytest.raises(error), making(tmp_path / "run") as place:
        place.mkdir()
        (place / "file").write_text("half")
        raise error
    assert not any(tmp_path.iterdir())


def test_parent_folders_made_for_it_are_removed_unless_somebody_uses_them(tmp_path):
    with pytest.raises(ValueError), making(tmp_path / "a" / "b" / "c" / "run") as place:
        place.write_text("half")
        (tmp_path / "a" / "mine").write_text("mine")
        raise ValueError
    assert [path.relative_to(tmp_path).as_posix() for path in sorted(tmp_path.rglob("*"))] == ["a", "a/mine"]


def test_an_unwritable_path_is_named_as_it_was_given(tmp_path):
    with pytest.raises(OSError) as error, making(tmp_path / "run") as place:
        (place / "file").write_text("in a folder that isn't there")
    assert str(error.value).startswith(f"{tmp_path / 'run'} can't be written: No such file or directory; nothing of it")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("empty", "empty is there already; choose another place$"),
        ("file/run", "nothing can be made at .*file/run: .*file is not a folder"),
        ("new/..", r"new/\.\. names no new file or folder; choose another place$"),
    ],
)
def test_an_unwritable_place_is_refused_before_any_work(tmp_path, name, reason):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match=reason), making(tmp_path / name):
        pytest.fail("has begun")
    assert {path.name for path in tmp_path.iterdir()} == {"empty", "file"}


def test_a_folder_named_like_an_unknown_user_is_created_as_it_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with making("~nobody-of-that-name/run") as place:
        place.write_text("whole")
    assert (tmp_path / "~nobody-of-that-name" / "run").read_text() == "whole"


def test_of_two_writers_of_one_folder_the_second_is_refused_and_the_first_wins(tmp_path, monkeypatch):
    """The second one appears between the last check and the rename."""
    real, looks = files.check_free, []

    def first_is_faster(path):
        real(path)
        looks.append(path.name)
        if looks == ["run", "run.data", "run"]:
            path.mkdir()
            (path / "file").write_text("first")

    monkeypatch.setattr(files, "check_free", first_is_faster)
    with pytest.raises(ValueError, match="run is there already"), making(tmp_path / "run") as place:
        place.mkdir()
        (place / "file").write_text("second")
        (place.parent / "run.data").write_text("second")
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert (tmp_path / "run" / "file").read_text() == "first"


@pytest.mark.parametrize("name", ["run", "run.data"])
def test_a_file_that_appeared_meanwhile_is_not_overwritten(tmp_path, name):
    with pytest.raises(ValueError, match=f"{name} is there already"), making(tmp_path / "run") as place:
        place.write_text("ours")
        (place.parent / "run.data").write_text("ours")
        (tmp_path / name).write_text("theirs")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, "theirs")]


# -- several processes ------------------------------------------------------------------------------------------------


def test_two_writers_of_one_file_never_mix_and_the_last_one_stays(tmp_path):
    with replacing(tmp_path / "x") as first, replacing(tmp_path / "x") as second:
        for _ in range(3):
            first.write(b"first")
            second.write(b"second")
    assert contents(tmp_path) == {"x": b"first" * 3}


def test_of_two_writers_of_a_new_file_the_slower_is_refused(tmp_path):
    with pytest.raises(ValueError, match="x is there already"):  # noqa: SIM117
        with replacing(tmp_path / "x", new=True) as slow:
            slow.write(b"slow")
            with replacing(tmp_path / "x", new=True) as fast:
                fast.write(b"fast")
    assert contents(tmp_path) == {"x": b"fast"}


def test_files_are_written_on_a_file_system_without_hard_links(tmp_path, monkeypatch):
    def refuse(*arguments):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with replacing(tmp_path / "x", new=True) as file:
        file.write(b"ours")
    with pytest.raises(ValueError, match="x is there already"), replacing(tmp_path / "x", new=True):
        pass
    assert contents(tmp_path) == {"x": b"ours"}


WRITE_UNTIL_KILLED = """
import sys, pathlib
from tinyvit.files import replacing
with replacing(pathlib.Path(sys.argv[1])) as file:
    file.write(b"half"); file.flush(); print("writes", flush=True); input()
"""


@pytest.fixture
def writer(tmp_path):
    """A process in the middle of writing a file."""
    command = [sys.executable, "-c", WRITE_UNTIL_KILLED, str(tmp_path / "x")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "writes\n"
        yield process
        process.kill()


@pytest.mark.end_to_end
def test_tidying_leaves_the_files_of_a_living_writer(tmp_path, writer):
    before = sorted(tmp_path.rglob("*"))
    tidy(tmp_path)
    write(tmp_path / "y", b"")
    assert sorted(tmp_path.rglob("*")) == sorted([*before, tmp_path / "y"])
    writer.communicate("\n")
    assert contents(tmp_path) == {"x": b"half", "y": b""}


@pytest.mark.end_to_end
def test_tidying_removes_what_a_killed_writer_left(tmp_path, writer):
    writer.kill()
    writer.wait()
    assert len(list(tmp_path.iterdir())) == 2
    tidy(tmp_path)
    assert not any(tmp_path.iterdir())


def test_a_lock_file_that_is_removed_before_it_is_held_is_created_again(tmp_path, monkeypatch):
    real, locks = files.try_lock, []

    def tidied_first(file):
        locks.append(file.name)
        monkeypatch.setattr(files, "try_lock", real)
        tidy(tmp_path)
        return real(file)

    monkeypatch.setattr(files, "try_lock", tidied_first)
    write(tmp_path / "x", b"whole")
    assert len(locks) == 1 and contents(tmp_path) == {"x": b"whole"}


def test_without_locks_nothing_is_tidied_and_everything_is_written(tmp_path, monkeypatch):
    def unsupported(file):
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(files, "try_lock", unsupported)
    with hidden_folder(tmp_path) as other:
        write(tmp_path / "x", b"whole")
        assert other.is_dir()
    assert contents(tmp_path) == {"x": b"whole"}


def test_an_unwritable_folder_is_reported_with_the_name_of_the_file(tmp_path, monkeypatch):
    def refuse(path, *arguments):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(PermissionError) as error:
        write(tmp_path / "x", b"")
    assert error.value.filename == str(tmp_path / "x")


# -- manifests --------------------------------------------------------------------------------------------------------

FILES = {"a.bin": b"one two three", "b.bin": b""}


@pytest.fixture
def manifest(tmp_path):
    write_with_manifest(tmp_path / "m.json", FILES, {"step": 7})
    return tmp_path / "m.json"


def test_a_manifest_lists_what_was_saved_with_it(manifest):
    content = verified_manifest(manifest)
    assert content["step"] == 7 and content["files"]["a.bin"]["bytes"] == 13
    assert contents(manifest.parent).keys() == {"m.json", *FILES}


def test_every_truncation_and_a_flipped_bit_in_every_byte_of_a_manifest_are_noticed(manifest):
    whole = manifest.read_bytes()
    for length in range(len(whole) - 1):  # nothing is lost without its last newline
        manifest.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"m\.json is damaged or no manifest"):
            verified_manifest(manifest)
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


@given(length=st.integers(0, 12), position=st.integers(0, 12), bit=st.integers(0, 7))
def test_a_truncated_changed_or_removed_file_is_named(tmp_path_factory, length, position, bit):
    folder = tmp_path_factory.mktemp("manifest")
    write_with_manifest(folder / "m.json", FILES)
    flipped = bytearray(FILES["a.bin"])
    flipped[position] ^= 1 << bit
    for content, message in ((FILES["a.bin"][:length], "bytes"), (bytes(flipped), "SHA256"), (None, "missing")):
        (folder / "a.bin").unlink()
        if content is not None:
            (folder / "a.bin").write_bytes(content)
        with pytest.raises(ValueError, match=rf"a\.bin is .*{message}|a\.bin is missing"):
            verified_manifest(folder / "m.json")
        (folder / "a.bin").write_bytes(b"")


@pytest.mark.parametrize(
    "entry", [3, [], {}, None, {"bytes": True, "sha256": ""}, {"bytes": 13, "sha256": 5}, {"bytes": "13"}]
)
def test_entries_of_another_kind_are_refused_even_with_a_valid_checksum(tmp_path, entry):
    (tmp_path / "a.bin").write_bytes(FILES["a.bin"])
    for entries in ({"a.bin": entry}, [entry], entry or 3):
        write_manifest(tmp_path / "m.json", entries)
        with pytest.raises(ValueError, match=r"m\.json is damaged or no manifest: expected"):
            verified_manifest(tmp_path / "m.json")


@pytest.mark.parametrize("content", ["[]", "{}", "null", '{"sha256": 1, "format": 1}', '{"format": 9, "sha256": ""}',
                                     "[" * 100_000, '{"format": 1, "sha256": "", "files": 3}'])  # fmt: skip
def test_json_of_another_kind_is_not_a_manifest(tmp_path, content):
    with pytest.raises(ValueError, match=r"m\.json is damaged or no manifest: \w"):
        read_from(tmp_path / "m.json", content.encode())


def test_while_files_are_being_replaced_there_is_no_manifest_of_the_old_ones(manifest, monkeypatch):
    def full(*paths):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no room to save .*a.bin: No space left.*make room and run the command again"):
        write_with_manifest(manifest, {"a.bin": b"new"})
    assert contents(manifest.parent) == FILES  # no manifest, no temporary file, nothing damaged


def test_a_folder_that_was_removed_is_named(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    shutil.rmtree(folder)
    with pytest.raises(ValueError, match=r"run was removed while it was in use; summary\.json can't be saved"):
        write(folder / "summary.json", b"")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_the_text_of_a_pipe_a_device_or_a_folder_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    os.symlink("/dev/zero", tmp_path / "endless")
    for path in (tmp_path / "pipe", tmp_path / "endless", tmp_path):
        with pytest.raises(ValueError, match="is not a file"):
            read_text(path)
