"""tinyvit data, with a data set of a few images and a server on this machine."""

import re
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest
from file_server import serving, status, whole
from small_cifar import archive, small, write_folder

from tinyvit import data
from tinyvit.data import cache
from tinyvit.data.cifar import CIFARS


@pytest.fixture(params=list(CIFARS))
def cifar(request, monkeypatch, tmp_path):
    """A small data set in place of the real one, and the contents of its files; the cache is empty."""
    spec, contents = small(CIFARS[request.param])
    monkeypatch.setitem(CIFARS, spec.name, spec)
    monkeypatch.setenv("TINYVIT_DATA", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "RETRIES", 0)
    return spec, contents


def rows(out):
    """The table as a dict."""
    return dict(re.fullmatch(r"  (\S.*?) {3,}(\S.*)", line).groups() for line in out.splitlines())


def test_it_downloads_a_data_set_and_describes_it(tinyvit, cifar, tmp_path, monkeypatch):
    spec, contents = cifar
    content = archive(spec, contents)
    with serving() as server:
        address = server.serve(f"/{spec.archive}", whole(content))
        monkeypatch.setitem(CIFARS, spec.name, replace(spec, sources=({address: sha256(content).hexdigest()},)))
        status, out, err = tinyvit("data", spec.name)
        assert (status, err) == (0, f"downloading {spec.archive} from {address}\n")
        assert tinyvit("data", spec.name) == (0, out, "")
    table, K = rows(out), len(spec.classes)
    assert table["data set"] == spec.name
    assert table["images"] == f"{3 * len(spec.parts) - 3} training and 3 test"
    assert table["classes"].startswith(f"{K}: {spec.classes[0]}, ") and table["classes"].endswith(spec.classes[-1])
    assert table["lies in"] == str(tmp_path / "cache" / spec.folder)
    assert table["came from"] == address
    assert table["checksums"].startswith("official")


@pytest.mark.parametrize("form", ["archive", "folder"])
def test_it_copies_the_given_files_and_later_commands_find_them(tinyvit, cifar, tmp_path, form):
    spec, contents = cifar
    path = tmp_path / "mine"
    if form == "archive":
        path.write_bytes(archive(spec, contents))
    else:
        write_folder(spec, contents, path)
    status, out, err = tinyvit("data", spec.name, "--from", "mine")
    assert (status, err) == (0, "")
    assert rows(out)["came from"] == f"file: {path}"
    images = np.frombuffer(contents[spec.names[-1]], "uint8").reshape(-1, spec.record)[:, len(spec.labels) :]
    np.testing.assert_array_equal(data.load(spec.name).test.images.reshape(len(images), -1), images)


def test_a_copy_that_is_not_official_is_accepted_with_a_plain_note(tinyvit, cifar, tmp_path):
    spec, _ = cifar
    write_folder(spec, small(spec, seed=1)[1], tmp_path / "mine")
    status, out, err = tinyvit("data", spec.name, "--from", "mine")
    assert (status, err) == (0, "")
    assert rows(out)["checksums"].startswith("not the official files")


def test_with_a_data_dir_the_data_go_there_and_are_looked_for_there(tinyvit, cifar, tmp_path):
    spec, contents = cifar
    write_folder(spec, contents, tmp_path / "mine")
    status, out, err = tinyvit("data", spec.name, "--from", "mine", "--data-dir", "there")
    assert (status, err) == (0, "")
    assert rows(out)["lies in"] == f"there/{spec.folder}" and not (tmp_path / "cache").exists()
    assert tinyvit("data", spec.name, "--data-dir", "there") == (0, out, "")
    assert data.load(spec.name, tmp_path / "there").test.classes == spec.classes


def test_data_already_in_a_data_dir_are_described_and_left_unchanged(tinyvit, cifar, tmp_path):
    spec, contents = cifar
    write_folder(spec, contents, tmp_path / "mine")
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    status, out, err = tinyvit("data", spec.name, "--data-dir", "mine")
    assert (status, err) == (0, "")
    assert rows(out)["lies in"] == "mine" and "came from" not in rows(out)
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


def test_if_every_source_fails_the_last_line_says_why_and_what_to_do(tinyvit, cifar, monkeypatch):
    spec, _ = cifar
    with serving() as server:
        sources = tuple({server.serve(f"/{code}", status(code)): "0" * 64} for code in (404, 403))
        monkeypatch.setitem(CIFARS, spec.name, replace(spec, sources=sources))
        ended, out, err = tinyvit("data", spec.name)
    assert (ended, out) == (2, "")
    assert re.fullmatch(
        r"tinyvit: error: .*404 Not Found; .*403 Forbidden.*--data-dir.*"
        rf"tinyvit data {spec.name} --from FILE",
        err.splitlines()[-1],
    )


def test_the_digits_are_built_in(tinyvit):
    status, out, err = tinyvit("data", "digits")
    assert (status, err) == (0, "")
    assert rows(out)["images"] == "1,437 training and 360 test" and "built in" in rows(out)["lies in"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("data", "missing NAME: The data set: digits, moving-digits, coloured-digits, cifar10 or cifar100"),
        ("data mnist", "unknown data set 'mnist'; expected one of digits, moving-digits, coloured-digits, cifar10"),
        ("data digits --from x", "digits is built in"),
        ("data digits --data-dir x", "digits is built in"),
        ("data cifar10 --from", "--from"),
        ("data cifar10 --form x", "--form"),
        ("data cifar10 --from nowhere", "nowhere doesn't exist; expected a folder with CIFAR-10's .bin files, or"),
        ("data cifar100 --from .", "holds no CIFAR-100; expected test.bin and its like, the folder cifar-100-binary"),
    ],
)
def test_bad_input_ends_with_one_line_and_writes_nothing(refused, tmp_path, monkeypatch, arguments, message):
    monkeypatch.setenv("TINYVIT_DATA", str(tmp_path / "cache"))
    assert message in refused(*arguments.split())
    assert not any(tmp_path.iterdir())
