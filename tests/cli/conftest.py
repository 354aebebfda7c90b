"""Commands run in this process, and finished runs for them to work on."""

import json
import re
import shutil
from functools import cache

import numpy as np
import pytest
from PIL import Image

from tinyvit import cli, data

TINY = ["--model.depth", "1", "--model.embed-dim", "16"]
NO_GPU = re.compile(r"^tinyvit: on the CPU, no GPU: .*\n", re.MULTILINE)


def pytest_collection_modifyitems(items):
    for item in items:
        if item.nodeid.startswith("tests/cli/"):
            item.add_marker(pytest.mark.end_to_end)


@pytest.fixture
def tinyvit(says_all):
    """Runs a command in an empty folder; returns exit status, stdout, and stderr without the note on a missing GPU."""

    def run(*arguments):
        status, out, err = says_all(*arguments)
        return status, out, NO_GPU.sub("", err)

    return run


@pytest.fixture
def says_all(capsys, monkeypatch, tmp_path):
    """Runs a command in an empty folder; returns its exit status, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TINYVIT_DATA", str(tmp_path / "cache"))

    def run(*arguments):
        capsys.readouterr()  # of trainings before
        with pytest.raises(SystemExit) as end:
            cli.main([str(argument) for argument in arguments])
        return end.value.code or 0, *capsys.readouterr()

    return run


@pytest.fixture
def succeeds(tinyvit):
    """Runs a command that must end with status 0 and nothing on stderr; returns its stdout."""

    def run(*arguments):
        status, out, err = tinyvit(*arguments)
        assert (status, err) == (0, "")
        return out

    return run


@pytest.fixture
def as_json(succeeds):
    """The object that a command prints with --json."""
    return lambda *arguments: json.loads(succeeds(*arguments, "--json"))


@pytest.fixture
def refused(tinyvit, contents, tmp_path):
    """Runs a command that must end with status 2 and one line on stderr, and change no file in the current folder;
    returns that line."""

    def run(*arguments):
        before = contents(tmp_path)
        status, _, err = tinyvit(*arguments)
        assert status == 2
        assert re.fullmatch(r"tinyvit: error: [^\n]+\n", err)
        assert contents(tmp_path) == before
        return err

    return run


@pytest.fixture(scope="session")
def contents():
    """The bytes of all files in a folder, and its folders, by path; without the locks of runs."""
    return lambda folder: {
        path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*") if path.name != ".lock"
    }


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """Makes the folder of a finished run by `tinyvit train ARGUMENTS`; the same one for the same arguments."""

    @cache
    def train(*arguments):
        path = tmp_path_factory.mktemp("cli") / "run"
        with pytest.raises(SystemExit, match="^0$"):
            cli.main(["train", *arguments[:1], "--epochs", "1", "--batch-size", "256", "--out", str(path),
                      *arguments[1:]])  # fmt: skip
        return path

    return train


@pytest.fixture(scope="session")
def run(trained):
    """The folder of a finished run."""
    return trained("digits", *TINY)


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    """A folder with five test digits as image files."""
    folder = tmp_path_factory.mktemp("photos")
    for i, image in enumerate(data.digits().test.images[:5]):
        Image.fromarray(np.rint(image[0] * (255 / 16)).astype("uint8")).save(folder / f"{i}.png")
    return folder


@pytest.fixture
def own_run(run, tmp_path):
    """A writable copy of the run."""
    return shutil.copytree(run, tmp_path / "own")
