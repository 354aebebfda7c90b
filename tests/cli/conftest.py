"""Commands run in this process, and a finished run for them to work on."""

import re
import shutil

import pytest

from tinyvit import cli

TINY = ["--epochs", "1", "--batch-size", "256", "--model.depth", "1", "--model.embed-dim", "16"]


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
        with pytest.raises(SystemExit) as end:
            cli.main([str(argument) for argument in arguments])
        return end.value.code or 0, *capsys.readouterr()

    return run


@pytest.fixture
def refused(tinyvit):
    """Runs a command that must end with status 2 and one line on stderr; returns that line."""

    def run(*arguments):
        status, _, err = tinyvit(*arguments)
        assert status == 2
        assert re.fullmatch(r"tinyvit: error: [^\n]+\n", err)
        return err

    return run


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """The folder of a finished run."""
    path = tmp_path_factory.mktemp("cli") / "run"
    with pytest.raises(SystemExit, match="^0$"):
        cli.main(["train", "digits", "--out", str(path), *TINY])
    return path


@pytest.fixture
def damaged(run, tmp_path):
    """A copy of the run with one file replaced or removed."""

    def make(name, content):
        copy = tmp_path / "damaged"
        shutil.copytree(run, copy)
        if content is None:
            (copy / name).unlink()
        else:
            (copy / name).write_bytes(content)
        return copy

    return make
