"""The cache folder, and data sets that are put into it from a local server or from a file."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pooch
import pytest
from file_server import in_turn, status, whole
from small_cifar import archive, assert_same_images, small, write_folder, write_parquet

from tinyvit.data import cache, cifar, cifar_files
from tinyvit.data.cifar import CIFAR10, CIFAR100
from tinyvit.data.cifar_files import PARQUET

TEN, CONTENTS = small(CIFAR10)
ARCHIVE = archive(TEN, CONTENTS)
OTHER_CONTENTS = small(CIFAR10, seed=1)[1]


def source(address, content=ARCHIVE):
    return {address: sha256(content).hexdigest()}


def from_server(server, *answers):
    """The small CIFAR-10 with sources that answer as given."""
    addresses = [server.serve(f"/{i}/{TEN.archive}", answer) for i, answer in enumerate(answers)]
    return replace(TEN, sources=tuple(map(source, addresses)))


def visible(root):
    names = (str(file.relative_to(root)) for file in root.rglob("*"))
    return sorted(name for name in names if not name.startswith("."))


WHOLE_CACHE = sorted([TEN.folder, *(f"{TEN.folder}/{name}" for name in (*TEN.names, cache.MANIFEST))])


def assert_kept(found, spec=TEN, contents=CONTENTS):
    assert_same_images(cifar.as_split(spec, found.rows), spec, contents)


# -- where it is ------------------------------------------------------------------------------------------------------


def test_the_cache_folder_is_the_one_named_by_the_environment_or_the_platforms(tmp_path, monkeypatch):
    monkeypatch.setenv("TINYVIT_DATA", str(tmp_path / "here"))
    assert cache.cache_folder() == tmp_path / "here"
    monkeypatch.setenv("TINYVIT_DATA", "~/here")
    assert cache.cache_folder() == Path.home() / "here"
    monkeypatch.setenv("TINYVIT_DATA", "")
    assert cache.cache_folder() == Path(pooch.os_cache("tinyvit"))


def test_a_folder_that_cannot_be_made_is_named_before_anything_is_asked_for(tmp_path, server):
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="file/data"):
        cache.obtain(from_server(server, whole(ARCHIVE)), tmp_path / "file" / "data")
    assert server.asked == []


# -- downloads --------------------------------------------------------------------------------------------------------


@pytest.mark.end_to_end
@pytest.mark.parametrize("answers", [
    [whole(ARCHIVE)],
    [in_turn(status(503), whole(ARCHIVE))],
    [status(404), whole(ARCHIVE)],
    [whole(ARCHIVE[:-1] + b"x"), whole(ARCHIVE)],
])  # fmt: skip
def test_missing_data_are_downloaded_once_and_then_read_from_the_disk(tmp_path, server, answers):
    spec = from_server(server, *answers)
    first = cache.obtain(spec, tmp_path)
    asked = len(server.asked)
    again = cache.obtain(spec, tmp_path)
    assert first.source == again.source == next(iter(spec.sources[-1]))
    assert first.path == again.path == tmp_path / TEN.folder
    assert_kept(first)
    assert_kept(again)
    assert len(server.asked) == asked
    assert visible(tmp_path) == WHOLE_CACHE


@pytest.mark.parametrize("cifar_spec", [CIFAR10, CIFAR100], ids=["cifar10", "cifar100"])
def test_the_parquet_copy_makes_the_same_files_as_the_archive(tmp_path, server, cifar_spec):
    spec, contents = small(cifar_spec)
    folder = write_parquet(spec, contents, tmp_path / "copy", order=spec.names[-2::-1])
    copy = {}
    for name in PARQUET:
        content = (folder / name).read_bytes()
        copy[server.serve(f"/{name}", whole(content))] = sha256(content).hexdigest()
    found = cache.obtain(replace(spec, sources=(copy,)), tmp_path)
    assert_kept(found, spec, contents)
    assert {name: (found.path / name).read_bytes() for name in spec.names} == contents
    assert cifar_files.is_official(spec, found.rows)


def test_the_parquet_copy_is_not_asked_for_without_the_extra(tmp_path, server, monkeypatch):
    copy = {server.serve("/copy.parquet", whole(b"")): "0" * 64}
    spec = replace(TEN, sources=(copy, source(server.serve("/archive/" + TEN.archive, whole(ARCHIVE)))))
    monkeypatch.setattr(cache, "find_spec", lambda name: None)
    assert_kept(cache.obtain(spec, tmp_path))
    assert server.asked == ["/archive/" + TEN.archive]


BAD = {
    "404 not found": (status(404), "404 Client Error: Not Found"),
    "a page instead": (whole(b"<html>busy</html>"), r"SHA256 hash of downloaded file .* does not match"),
}


@pytest.mark.parametrize(("answer", "reason"), BAD.values(), ids=BAD)
def test_a_failed_download_is_named_with_its_reason_and_leaves_nothing(server, tmp_path, answer, reason):
    address = server.serve("/a/" + TEN.archive, answer)
    with pytest.raises(ValueError, match=rf"^CIFAR-10 could not be downloaded \(127\..*\d: {reason}.*--from FILE$"):
        cache.obtain(replace(TEN, sources=(source(address),)), tmp_path)
    assert visible(tmp_path) == []


@pytest.mark.parametrize("damage", [lambda content: content[:-2], lambda content: b"x" + content[1:], None])
@pytest.mark.parametrize("name", [TEN.names[0], cache.MANIFEST])
def test_what_has_changed_on_the_disk_is_refused(tmp_path, name, damage):
    (tmp_path / "mine").write_bytes(ARCHIVE)
    file = cache.take_over(TEN, tmp_path / "mine", tmp_path).path / name
    content = file.read_bytes()
    file.unlink()
    if damage:
        file.write_bytes(damage(content))
    elif name == cache.MANIFEST:
        return assert_kept(cache.obtain(TEN, tmp_path))  # as files that a user put there
    with pytest.raises(ValueError, match=rf"{name} is (damaged|missing).*; remove .*{TEN.folder}, or repeat tinyvit"):
        cache.obtain(TEN, tmp_path)


def test_files_that_the_user_put_there_are_read_and_left_unchanged(tmp_path, server):
    write_folder(TEN, CONTENTS, tmp_path / TEN.folder)
    before = {file: file.read_bytes() for file in tmp_path.rglob("*.bin")}
    found = cache.obtain(from_server(server, whole(ARCHIVE)), tmp_path)
    assert_kept(found)
    assert found.source is None and server.asked == []
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


# -- several processes, and their sudden end --------------------------------------------------------------------------


def test_while_one_downloads_another_waits_for_it(tmp_path, server, capsys):
    spec, said = from_server(server, whole(ARCHIVE)), ""
    with ThreadPoolExecutor() as pool:
        with cache.filling(tmp_path):
            second = pool.submit(cache.obtain, spec, tmp_path)
            while not ("waiting" in said or second.done()):
                time.sleep(0.01)
                said += capsys.readouterr().err
            first = cache.download(spec, tmp_path)
        for found in (first, second.result()):
            assert_kept(found)
    assert said == f"waiting for another process that puts data into {tmp_path}\n"
    assert len(server.asked) == 1


@pytest.mark.parametrize("step", range(1, 9))
def test_wherever_the_writing_stops_the_folder_is_complete_or_absent(tmp_path, server, monkeypatch, step):
    """Stopped at the n-th file or rename: six files, their checksums, and the rename."""
    spec, calls = from_server(server, whole(ARCHIVE)), []

    def stop(function):
        def stopping(*arguments):
            calls.append(arguments)
            if len(calls) == step:
                raise KeyboardInterrupt
            return function(*arguments)

        return stopping

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", stop(os.replace))
        patched.setattr(Path, "rename", stop(Path.rename))
        with pytest.raises(KeyboardInterrupt):
            cache.obtain(spec, tmp_path)
    assert visible(tmp_path) == []
    assert_kept(cache.obtain(spec, tmp_path))


# -- copies given by the user -----------------------------------------------------------------------------------------


def test_the_users_copy_is_copied_into_the_cache_and_read_from_there(tmp_path):
    mine = tmp_path / "mine"
    mine.write_bytes(ARCHIVE)
    taken = cache.take_over(TEN, mine, tmp_path / "cache")
    assert mine.read_bytes() == ARCHIVE
    for found in (taken, cache.obtain(TEN, tmp_path / "cache"), cache.find_cached(TEN, tmp_path / "cache")):
        assert_kept(found)
        assert found.source == f"file: {mine}"
    assert visible(tmp_path / "cache") == WHOLE_CACHE


def test_a_copy_replaces_what_tinyvit_had_there(tmp_path, server):
    cache.obtain(from_server(server, whole(ARCHIVE)), tmp_path / "cache")
    write_folder(TEN, OTHER_CONTENTS, tmp_path / "mine")
    assert_kept(cache.take_over(TEN, tmp_path / "mine", tmp_path / "cache"), contents=OTHER_CONTENTS)
    assert_kept(cache.obtain(TEN, tmp_path / "cache"), contents=OTHER_CONTENTS)
    assert visible(tmp_path / "cache") == WHOLE_CACHE


def test_an_incomplete_copy_is_refused_and_changes_nothing(tmp_path, server):
    cache.obtain(from_server(server, whole(ARCHIVE)), tmp_path / "cache")
    before = {file: file.read_bytes() for file in (tmp_path / "cache").rglob("*") if file.is_file()}
    (tmp_path / "half").write_bytes(ARCHIVE[: len(ARCHIVE) // 2])
    write_folder(TEN, CONTENTS | {TEN.names[2]: b"short"}, tmp_path / "short")
    for path, message in [("half", "can't be read as"), ("short", "has 5 bytes"), ("nowhere", "doesn't exist")]:
        with pytest.raises(ValueError, match=message):
            cache.take_over(TEN, tmp_path / path, tmp_path / "cache")
    assert {file: file.read_bytes() for file in (tmp_path / "cache").rglob("*") if file.is_file()} == before


def test_a_folder_that_is_not_tinyvits_is_never_replaced(tmp_path):
    write_folder(TEN, OTHER_CONTENTS, tmp_path / "cache" / TEN.folder)
    (tmp_path / "mine").write_bytes(ARCHIVE)
    with pytest.raises(ValueError, match="exists, and tinyvit didn't write it"):
        cache.take_over(TEN, tmp_path / "mine", tmp_path / "cache")
    assert_kept(cache.obtain(TEN, tmp_path / "cache"), contents=OTHER_CONTENTS)
