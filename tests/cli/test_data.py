"""tinyvit data, with a data set of a few images and a server on this machine."""

import re
from dataclasses import replace
from hashlib import sha256

import pytest
from file_server import serving, whole
from small_cifar import archive, small, write_folder

from tinyvit.data.cifar import CIFARS


@pytest.fixture(params=CIFARS)
def cifar(request, monkeypatch):
    """A small data set in place of the real one, and the contents of its files; the cache is empty."""
    spec, contents = small(CIFARS[request.param])
    monkeypatch.setitem(CIFARS, spec.name, spec)
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
    assert table["stored in"] == str(tmp_path / "cache" / spec.folder)
    assert table["came from"] == address
    assert table["checksums"].startswith("official")


@pytest.mark.parametrize("official", [True, False])
def test_given_files_are_copied_and_later_commands_find_them(succeeds, cifar, tmp_path, official):
    spec, contents = cifar
    write_folder(spec, contents if official else small(spec, seed=1)[1], tmp_path / "mine")
    found = rows(succeeds("data", spec.name, "--from", "mine"))
    assert found["came from"] == f"file: {tmp_path / 'mine'}"
    assert found["checksums"].startswith("official" if official else "not the official files")
    assert found["stored in"] == str(tmp_path / "cache" / spec.folder)
    assert rows(succeeds("data", spec.name)) == found


def test_data_already_in_a_data_dir_are_described_and_left_unchanged(succeeds, contents, cifar, tmp_path):
    spec, files = cifar
    write_folder(spec, files, tmp_path / "mine")
    before = contents(tmp_path / "mine")
    found = rows(succeeds("data", spec.name, "--data-dir", "mine"))
    assert found["stored in"] == "mine" and "came from" not in found and contents(tmp_path / "mine") == before


def test_the_digits_are_built_in(succeeds):
    found = rows(succeeds("data", "digits"))
    assert found["images"] == "1,437 training and 360 test" and "built in" in found["stored in"]


@pytest.mark.parametrize(("arguments", "message"), [
    ("", "missing NAME: The data set: digits, moving-digits, coloured-digits, segment-digits, sized-digits,"),
    ("mnist", "unknown data set 'mnist'; expected one of digits, moving-digits, coloured-digits, cifar10"),
    ("digits --from x", "digits is built in"),
    ("folder", "folder is made of files of your own"),
    ("cifar10 --form x", "--form"),
    ("cifar10 --from nowhere", "nowhere doesn't exist; expected test_batch.bin and its like, cifar-10-batc"),
    ("cifar10 --from ~nobody-of-this-name", "~nobody-of-this-name doesn't exist; expected test_batch"),
    ("cifar100 --from .", "holds no CIFAR-100; expected test.bin and its like, cifar-100-binary"),
])  # fmt: skip
def test_bad_input_ends_with_one_line_and_writes_nothing(refused, arguments, message):
    assert message in refused("data", *arguments.split())
