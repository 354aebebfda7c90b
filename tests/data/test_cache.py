"""The cache folder, and data sets that are put into it from a local server or from a file."""

import os
import subprocess
import sys
import time
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pooch
import pytest
from file_server import cut_off, in_turn, redirect, serving, slow, stalled, status, whole
from small_cifar import archive, assert_same_images, small, write_folder, write_parquet

from tinyvit.data import cache, cifar, cifar_files
from tinyvit.data.cifar import CIFAR10, CIFAR100
from tinyvit.data.cifar_files import PARQUET

TEN, CONTENTS = small(CIFAR10)
ARCHIVE = archive(TEN, CONTENTS)
OTHER_CONTENTS = small(CIFAR10, seed=1)[1]
TESTS = Path(__file__).parents[1]


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


def test_the_cache_folder_is_the_one_named_by_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("TINYVIT_DATA", str(tmp_path / "here"))
    assert cache.cache_folder() == tmp_path / "here"
    monkeypatch.setenv("TINYVIT_DATA", "~/here")
    assert cache.cache_folder() == Path.home() / "here"


@pytest.mark.parametrize("value", [None, ""])
def test_by_default_the_cache_folder_is_the_platforms(monkeypatch, value):
    monkeypatch.delenv("TINYVIT_DATA", raising=False)
    if value is not None:
        monkeypatch.setenv("TINYVIT_DATA", value)
    assert cache.cache_folder().name == "tinyvit" and cache.cache_folder().is_absolute()


def test_a_folder_that_cannot_be_written_to_is_named_before_anything_is_asked_for(tmp_path, server):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"file/data can't be written to \(Not a directory\); set TINYVIT_DATA"):
        cache.obtain(from_server(server, whole(ARCHIVE)), tmp_path / "file" / "data")
    assert server.asked == []


# -- downloads --------------------------------------------------------------------------------------------------------


@pytest.mark.end_to_end
@pytest.mark.parametrize("answers", [
    [slow(ARCHIVE)],
    [in_turn(cut_off(ARCHIVE), whole(ARCHIVE))],
    [in_turn(status(503), whole(ARCHIVE))],
    [status(404), whole(ARCHIVE)],
    [whole(ARCHIVE[:-1] + b"x"), slow(ARCHIVE)],
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


def test_redirects_are_followed_and_no_compressed_transfer_is_asked_for(tmp_path, server):
    """A server that serves .tar.gz as a compressed .tar would have it unpacked on arrival."""
    seen = []

    def answer(handler):
        seen.append(handler.headers["Accept-Encoding"])
        whole(ARCHIVE)(handler)

    address = server.serve("/a/" + TEN.archive, redirect(server.serve("/b/" + TEN.archive, answer)))
    assert_kept(cache.obtain(replace(TEN, sources=(source(address),)), tmp_path))
    assert seen == ["identity"]


BAD = {
    "404 not found": (status(404), "the server answered 404 Not Found"),
    "cut off for ever": (cut_off(ARCHIVE), "there is no connection, or it broke off"),
    "stalled": (stalled(ARCHIVE), "there is no connection, or it broke off"),
    "a page instead": (whole(b"<html>busy</html>"), rf"{TEN.archive} has another checksum than the published one"),
}


@pytest.mark.parametrize(("answer", "reason"), BAD.values(), ids=BAD)
def test_an_incomplete_download_is_named_with_its_reason_and_leaves_nothing(
    server, tmp_path, monkeypatch, answer, reason
):
    monkeypatch.setattr(cache, "TIMEOUT", 0.1)
    address = server.serve("/a/" + TEN.archive, answer)
    with pytest.raises(ValueError, match=rf"^CIFAR-10 could not be downloaded \(127.*: {reason}.*--from FILE$"):
        cache.obtain(replace(TEN, sources=(source(address),)), tmp_path)
    assert visible(tmp_path) == []


def test_content_that_cannot_be_read_and_a_dead_host_are_left_for_the_next_source(tmp_path, server):
    with serving() as gone:
        dead = source(gone.serve("/a/" + TEN.archive, whole(ARCHIVE)))
    wrong = source(server.serve("/wrong/" + TEN.archive, whole(b"no archive")), b"no archive")
    spec = replace(TEN, sources=(dead, wrong, source(server.serve("/right/" + TEN.archive, whole(ARCHIVE)))))
    assert_kept(cache.obtain(spec, tmp_path))


def test_if_no_source_works_the_error_names_each_and_what_else_can_be_done(tmp_path, server):
    with pytest.raises(ValueError, match=r"404.*503.*--data-dir.*tinyvit data cifar10 --from FILE"):
        cache.obtain(from_server(server, status(404), status(503)), tmp_path)
    assert visible(tmp_path) == []


@pytest.mark.parametrize("terminal", [False, True])
def test_one_plain_line_is_printed_and_in_a_terminal_a_bar(server, tmp_path, capsys, monkeypatch, terminal):
    spec = from_server(server, slow(ARCHIVE))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    cache.obtain(spec, tmp_path)
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"downloading {TEN.archive} from {next(iter(spec.sources[0]))}\n")
    assert ("100%" in err) == terminal and (err.count("\n") == 1) != terminal


def test_an_interrupted_download_leaves_nothing(server, tmp_path, monkeypatch):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(pooch.HTTPDownloader, "__call__", interrupt)
    with pytest.raises(KeyboardInterrupt):
        cache.obtain(from_server(server, whole(ARCHIVE)), tmp_path)
    assert visible(tmp_path) == []


@pytest.mark.parametrize("damage", ["flip", "truncate", "lengthen", "remove"])
@pytest.mark.parametrize("name", [TEN.names[0], TEN.names[-1]])
def test_a_damaged_download_is_reported_and_fetched_again(tmp_path, server, capsys, damage, name):
    spec = from_server(server, whole(ARCHIVE))
    path = cache.obtain(spec, tmp_path).path / name
    content = path.read_bytes()
    capsys.readouterr()
    if damage == "remove":
        path.unlink()
    else:
        changed = {"flip": bytes([content[0]]) + bytes([content[1] ^ 1]) + content[2:], "truncate": content[:-1],
                   "lengthen": content + b"x"}  # fmt: skip
        path.write_bytes(changed[damage])
    assert_kept(cache.obtain(spec, tmp_path))
    assert len(server.asked) == 2
    err = capsys.readouterr().err
    assert name in err and "downloading it again" in err
    assert visible(tmp_path) == WHOLE_CACHE


def test_if_a_damaged_download_cannot_be_fetched_again_it_stays_and_is_never_read(tmp_path, server):
    spec = from_server(server, in_turn(whole(ARCHIVE), status(404)))
    path = cache.obtain(spec, tmp_path).path / TEN.names[0]
    path.write_bytes(b"x" + path.read_bytes()[1:])
    for _ in range(2):
        with pytest.raises(ValueError, match="404 Not Found"):
            cache.obtain(spec, tmp_path)
    with pytest.raises(ValueError, match=r"data_batch_1\.bin is damaged"):
        cifar.load(spec, tmp_path)
    assert visible(tmp_path) == WHOLE_CACHE


@pytest.mark.parametrize("content", [b"", b"[]", b'{"source": 1, "sha256": 2}'])
def test_files_with_a_damaged_manifest_are_not_trusted(tmp_path, server, content):
    spec = from_server(server, whole(ARCHIVE))
    (cache.obtain(spec, tmp_path).path / cache.MANIFEST).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{cache.MANIFEST} is damaged.*; remove .*{TEN.folder}, or repeat"):
        cache.obtain(spec, tmp_path)


def test_files_that_the_user_put_there_are_read_and_left_unchanged(tmp_path, server):
    write_folder(TEN, CONTENTS, tmp_path / TEN.folder)
    before = {file: file.read_bytes() for file in tmp_path.rglob("*.bin")}
    found = cache.obtain(from_server(server, whole(ARCHIVE)), tmp_path)
    assert_kept(found)
    assert found.source is None and server.asked == []
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


# -- several processes, and their sudden end --------------------------------------------------------------------------

OBTAIN = """
import sys
import time
from dataclasses import replace
from pathlib import Path
from small_cifar import small
from test_cache import TEN, assert_kept, source
from tinyvit.data import cache
assert_kept(cache.obtain(replace(TEN, sources=(source(sys.argv[1]),)), Path(sys.argv[2])))
print("whole")
"""


def process(address, root):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS / "data"), str(TESTS.parent)])}
    command = [sys.executable, "-c", OBTAIN, address, str(root)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


@pytest.mark.end_to_end
def test_of_two_processes_one_downloads_and_the_other_waits_for_it(tmp_path, server):
    address = server.serve("/a/" + TEN.archive, stalled(ARCHIVE))
    with process(address, tmp_path) as first:
        assert first.stderr.readline().startswith("downloading")
        with process(address, tmp_path) as second:
            line = second.stderr.readline()
            assert line == f"waiting for another process that puts CIFAR-10 into {tmp_path}\n"
            server.released.set()
            assert [p.communicate(timeout=60) for p in (first, second)] == [("whole\n", "")] * 2
    assert server.asked == ["/a/" + TEN.archive]


@pytest.mark.end_to_end
def test_a_download_that_was_killed_leaves_no_broken_cache_and_no_lock(tmp_path, server):
    address = server.serve("/a/" + TEN.archive, in_turn(stalled(ARCHIVE), whole(ARCHIVE)))
    with process(address, tmp_path) as killed:
        assert killed.stderr.readline().startswith("downloading")
        while not server.asked:
            time.sleep(0.01)
        killed.kill()
        killed.communicate()
    assert visible(tmp_path) == []
    assert_kept(cache.obtain(replace(TEN, sources=(source(address),)), tmp_path))
    assert visible(tmp_path) == WHOLE_CACHE
    assert [file.name for file in tmp_path.iterdir() if file.is_dir()] == [TEN.folder]


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


@pytest.fixture(params=["folder", "folder of the folder", "archive", "parquet"])
def mine(request, tmp_path):
    """A user's own copy of the small CIFAR-10."""
    path = tmp_path / "mine"
    if request.param == "archive":
        path.write_bytes(ARCHIVE)
    elif request.param == "parquet":
        write_parquet(TEN, CONTENTS, path)
    elif request.param == "folder":
        write_folder(TEN, CONTENTS, path)
    else:
        write_folder(TEN, CONTENTS, path / TEN.folder)
    return path


def test_the_users_copy_is_copied_into_the_cache_and_read_from_there(tmp_path, mine):
    before = {file: file.read_bytes() for file in (mine, *mine.rglob("*")) if file.is_file()}
    taken = cache.take_over(TEN, mine, tmp_path / "cache")
    assert {file: file.read_bytes() for file in before} == before
    for found in (taken, cache.obtain(TEN, tmp_path / "cache"), cache.kept(TEN, tmp_path / "cache")):
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
    for path, message in [("half", "cut off"), ("short", "has 5 bytes"), ("nowhere", "doesn't exist")]:
        with pytest.raises(ValueError, match=message):
            cache.take_over(TEN, tmp_path / path, tmp_path / "cache")
    assert {file: file.read_bytes() for file in (tmp_path / "cache").rglob("*") if file.is_file()} == before


def test_a_folder_that_is_not_tinyvits_is_never_replaced(tmp_path):
    write_folder(TEN, OTHER_CONTENTS, tmp_path / "cache" / TEN.folder)
    (tmp_path / "mine").write_bytes(ARCHIVE)
    with pytest.raises(ValueError, match="exists, and tinyvit didn't write it"):
        cache.take_over(TEN, tmp_path / "mine", tmp_path / "cache")
    assert_kept(cache.obtain(TEN, tmp_path / "cache"), contents=OTHER_CONTENTS)


def test_a_copy_that_was_damaged_is_not_replaced_by_a_download(tmp_path, server):
    write_folder(TEN, OTHER_CONTENTS, tmp_path / "mine")
    path = cache.take_over(TEN, tmp_path / "mine", tmp_path / "cache").path / TEN.names[1]
    path.write_bytes(b"x" + path.read_bytes()[1:])
    with pytest.raises(ValueError, match=rf"{TEN.names[1]} is damaged.*repeat tinyvit data .*--from"):
        cache.obtain(from_server(server, whole(ARCHIVE)), tmp_path / "cache")
    assert server.asked == []
    assert_kept(cache.take_over(TEN, tmp_path / "mine", tmp_path / "cache"), contents=OTHER_CONTENTS)
