"""Downloads from a real local server."""

import hashlib
import sys

import pytest
from file_server import cut_off, in_turn, redirect, serving, slow, stalled, status, whole

from tinyvit.data import download as module
from tinyvit.data.download import Remote, Source, download

CONTENT = bytes(range(256)) * 2000
NAME = "data.bin"


def source(address, content=CONTENT, **options):
    """A source of one file; the checksum is that of `content`."""
    return Source((Remote(NAME, address, f"sha256:{hashlib.sha256(content).hexdigest()}"),), **options)


def read(folder):
    return (folder / NAME).read_bytes()


GOOD = [
    whole(CONTENT),
    slow(CONTENT),
    in_turn(cut_off(CONTENT), whole(CONTENT)),
    in_turn(status(503), status(429), whole(CONTENT)),
]
BAD = {
    "404 not found": (status(404), "the server answered 404 Not Found", 1),
    "403 forbidden": (status(403), "the server answered 403 Forbidden", 1),
    "500 for ever": (status(500), "the server answered 500", 3),
    "cut off for ever": (cut_off(CONTENT), "the connection broke off", 3),
    "wrong bytes": (whole(CONTENT[:-1] + b"x"), "data.bin has another checksum than the published one", 1),
    "a page instead": (whole(b"<html>busy</html>"), "data.bin has another checksum", 1),
    "nothing": (whole(b""), "data.bin has another checksum", 1),
}


@pytest.mark.parametrize("answer", GOOD, ids=["whole", "slow", "cut off once", "busy twice"])
def test_a_file_that_finally_arrives_complete_is_kept(server, tmp_path, answer):
    only = source(server.serve("/a", answer))
    assert download([only], tmp_path, read) == (CONTENT, only)
    assert not any(tmp_path.iterdir())


def test_redirects_are_followed(server, tmp_path):
    address = server.serve("/a", redirect(server.serve("/b", redirect(server.serve("/c", whole(CONTENT))))))
    assert download([source(address)], tmp_path, read)[0] == CONTENT
    assert server.asked == ["/a", "/b", "/c"]


def test_a_loop_of_redirects_is_an_error(server, tmp_path):
    address = server.serve("/a", redirect("/a"))
    with pytest.raises(ValueError, match="TooManyRedirects"):
        download([source(address)], tmp_path, read)


@pytest.mark.parametrize(("answer", "reason", "requests"), BAD.values(), ids=BAD)
def test_an_incomplete_download_is_named_with_its_reason_and_leaves_nothing(
    server, tmp_path, answer, reason, requests
):
    with pytest.raises(ValueError, match=rf"127\.0\.0\.1:\d+: {reason}"):
        download([source(server.serve("/a", answer))], tmp_path, read)
    assert len(server.asked) == requests
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("answer", [answer for answer, *_ in BAD.values()], ids=BAD)
def test_when_a_source_fails_the_next_is_used_and_the_failure_reported(server, tmp_path, capsys, answer):
    first, second = source(server.serve("/a", answer)), source(server.serve("/b", whole(CONTENT)))
    assert download([first, second], tmp_path, read) == (CONTENT, second)
    assert f"; trying {second.host}" in capsys.readouterr().err


def test_a_failed_source_is_not_asked_again(server, tmp_path, capsys):
    address = server.serve("/a", whole(CONTENT))
    with serving() as gone:
        dead = source(gone.serve("/a", whole(CONTENT)))
    assert download([dead, source(address)], tmp_path, read)[0] == CONTENT
    assert f"{dead.host}: no connection (NewConnectionError); trying" in capsys.readouterr().err


@pytest.mark.parametrize("answer", [stalled(CONTENT), stalled(CONTENT, sent=0)], ids=["on the way", "at the start"])
def test_a_server_that_stalls_is_abandoned(server, tmp_path, monkeypatch, answer):
    monkeypatch.setattr(module, "TIMEOUT", 0.1)
    with pytest.raises(ValueError, match=r"nothing came for 0\.1 seconds"):
        download([source(server.serve("/a", answer))], tmp_path, read)
    assert not any(tmp_path.iterdir())


@pytest.fixture
def impatient(monkeypatch):
    """Treat every source as too slow from its first bytes on."""
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    monkeypatch.setattr(module, "SLOWEST", float("inf"))


def test_a_very_slow_source_is_abandoned_for_the_next(impatient, server, tmp_path, capsys, monkeypatch):
    def fast(handler):
        monkeypatch.setattr(module, "PATIENCE", float("inf"))
        whole(CONTENT)(handler)

    first, second = source(server.serve("/a", slow(CONTENT))), source(server.serve("/b", fast))
    assert download([first, second], tmp_path, read) == (CONTENT, second)
    assert "sends only" in capsys.readouterr().err


def test_a_very_slow_source_is_given_its_time_if_no_other_works(impatient, server, tmp_path):
    first, second = source(server.serve("/a", slow(CONTENT))), source(server.serve("/b", status(404)))
    assert download([first, second], tmp_path, read) == (CONTENT, first)
    assert server.asked == ["/a", "/b", "/a"]


def test_if_all_sources_are_very_slow_the_first_is_given_its_time(impatient, server, tmp_path):
    sources = [source(server.serve(path, slow(CONTENT))) for path in ("/a", "/b")]
    assert download(sources, tmp_path, read) == (CONTENT, sources[0])
    assert server.asked == ["/a", "/b", "/a"]


def test_if_all_fail_the_error_gives_the_reason_of_each(server, tmp_path):
    bad = [answer for answer, *_ in BAD.values()]
    sources = [source(server.serve(f"/{i}", answer)) for i, answer in enumerate(bad)]
    with pytest.raises(ValueError) as error:
        download(sources, tmp_path, read)
    assert all(reason in str(error.value) for _, reason, _ in BAD.values())


def test_a_source_that_needs_an_extra_is_skipped_without_it(server, tmp_path):
    address = server.serve("/a", whole(CONTENT))
    lacking = source(address, extra="fancy", module="no_such_module")
    assert download([lacking, source(address)], tmp_path, read)[0] == CONTENT
    assert len(server.asked) == 1
    with pytest.raises(ValueError, match=r"needs the extra fancy \(pip install 'tinyvit\[fancy\]'\)"):
        download([lacking], tmp_path, read)


def test_a_source_whose_files_cannot_be_read_is_abandoned_for_the_next(server, tmp_path):
    def picky(folder):
        if len(server.asked) == 1:
            raise ValueError("not what it should be")
        return read(folder)

    sources = [source(server.serve(path, whole(CONTENT))) for path in ("/a", "/b")]
    assert download(sources, tmp_path, picky) == (CONTENT, sources[1])


def test_of_several_files_each_is_fetched(server, tmp_path):
    files = [
        Remote(name, server.serve(f"/{name}", whole(content)), f"sha256:{hashlib.sha256(content).hexdigest()}")
        for name, content in (("a", b"first"), ("b", b"second"))
    ]
    found, _ = download(
        [Source(tuple(files))], tmp_path, lambda folder: {file.name: file.read_bytes() for file in folder.iterdir()}
    )
    assert found == {"a": b"first", "b": b"second"}


def test_a_compressed_transfer_is_not_requested(server, tmp_path):
    """A server that serves .tar.gz as a compressed .tar would have it unpacked on arrival."""
    seen = []

    def answer(handler):
        seen.append(handler.headers["Accept-Encoding"])
        whole(CONTENT)(handler)

    download([source(server.serve("/a", answer))], tmp_path, read)
    assert seen == ["identity"]


def test_without_a_terminal_it_prints_one_plain_line(server, tmp_path, capsys):
    address = server.serve("/a", slow(CONTENT))
    download([source(address)], tmp_path, read)
    assert capsys.readouterr() == ("", f"downloading {NAME} from {address}\n")


def test_in_a_terminal_it_draws_a_bar(server, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    download([source(server.serve("/a", slow(CONTENT)))], tmp_path, read)
    assert "512k" in capsys.readouterr().err


def test_a_disk_that_cannot_be_written_to_is_not_blamed_on_the_source(server, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        download([source(server.serve("/a", whole(CONTENT)))], tmp_path / "file" / "data", read)


def test_an_interrupt_leaves_nothing(server, tmp_path, monkeypatch):
    def interrupt(self, received):
        raise KeyboardInterrupt

    monkeypatch.setattr(module.Progress, "update", interrupt)
    with pytest.raises(KeyboardInterrupt):
        download([source(server.serve("/a", whole(CONTENT)))], tmp_path, read)
    assert not any(tmp_path.iterdir())
