"""Closed standard streams, and control characters in names, each in its own process."""

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

CLOSED = [">&-", "2>&-", "<&- >&- 2>&-"]
STRANGE = "a\x1b[31m\nb\u202egnp.png"  # red, a line end, and from right to left
ESCAPED = r"a\x1b[31m\nb\u202egnp.png"
TINY = ("--epochs", "1", "--model.embed-dim", "16", "--model.depth", "1", "--model.num-heads", "2")


@pytest.fixture
def shell(tmp_path):
    """Runs `tinyvit ARGUMENTS` in a shell that closes the given streams."""

    def run(arguments, streams="", **environment):
        line = f'"{sys.executable}" -m tinyvit {arguments} {streams}'
        environment = os.environ | {"COLUMNS": "80"} | environment
        done = subprocess.run(["sh", "-c", line], cwd=tmp_path, env=environment, capture_output=True, timeout=120)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    return run


@pytest.mark.skipif(os.name != "posix", reason="`>&-` takes a shell")
@pytest.mark.parametrize("streams", CLOSED)
def test_a_command_with_closed_streams_has_the_status_and_the_output_that_it_has_otherwise(shell, streams):
    for arguments, status, out, err in (("--version", 0, "tinyvit ", ""), ("wrong", 2, "", "tinyvit: error: unknown")):
        found = shell(arguments, streams)
        assert found[0] == status
        assert found[1].startswith("" if " >&-" in f" {streams}" else out)
        assert found[2].startswith("" if "2>&-" in streams else err) and "Traceback" not in found[2]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs Linux's /dev/full")
@pytest.mark.parametrize("command", ["--version", "--help", "gradcheck --help"])
def test_an_output_that_cannot_be_written_is_said_in_one_line(shell, command):
    expected = "tinyvit: error: the output can't be written: No space left on device\n"
    assert shell(command, ">/dev/full") == (2, "", expected)


def test_control_characters_in_names_are_escaped_in_output_and_errors(tinyvit, refused, run, tmp_path):
    Image.new("L", (8, 8)).save(tmp_path / STRANGE)
    (tmp_path / f"broken{STRANGE}").write_bytes(b"")
    status, out, err = tinyvit("predict", run, STRANGE, f"broken{STRANGE}")
    assert status == 2 and out.startswith(f"{ESCAPED}\n")
    assert err.startswith(f"tinyvit: error: broken{ESCAPED} can't be read as an image")
    for line in (*out.splitlines(), *err.splitlines()):
        assert line.isprintable()
    assert ESCAPED in refused("evaluate", STRANGE)
    assert ESCAPED in refused("train", "digits", "--out", STRANGE)
    assert ESCAPED in refused(STRANGE) or repr(STRANGE)[1:-1] in refused(STRANGE)


@pytest.mark.parametrize("columns", range(1, 6))
def test_help_is_printed_in_a_very_narrow_terminal(tinyvit, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    status, out, _ = tinyvit("summary", "--help")
    assert status == 0 and "--batch-size" in out
    assert os.environ["COLUMNS"] == str(columns)


@pytest.fixture
def loop(tmp_path):
    """A symbolic link to itself."""
    (tmp_path / "loop").symlink_to("loop")
    return "loop"


@pytest.mark.parametrize(
    "arguments",
    [
        ("train", "folder", "--data-dir", "loop"),
        ("train", "cifar10-cpu", "--data-dir", "loop"),
        ("train", "digits", "--out", "loop"),
        ("train", "digits", "--out", "loop/run"),
        ("train", "--resume", "loop"),
        ("evaluate", "loop"),
        ("notebooks", "loop"),
        ("notebooks", "loop/folder"),
        ("data", "cifar10", "--from", "loop"),
        ("data", "cifar10", "--data-dir", "loop"),
        ("import", "loop", "--out", "run"),
        ("summary", "loop"),
    ],
)
def test_a_symbolic_link_to_itself_is_refused_in_one_line(refused, loop, tmp_path, arguments):
    assert "Traceback" not in refused(*arguments)
    assert [path.name for path in tmp_path.iterdir() if path.name != "cache"] == ["loop"]


@pytest.mark.skipif(sys.platform != "linux", reason="names of any bytes")
def test_names_of_classes_that_a_terminal_would_obey_are_escaped_in_all_that_is_printed(tinyvit, tmp_path):
    names = ["a\x1b[31m", "b\u202e", "c\nd", "plain"]
    draw = np.random.default_rng(0)
    for part in ("train", "test"):
        for name in names:
            (tmp_path / "photos" / part / name).mkdir(parents=True)
            for i in range(4):
                pixels = draw.integers(0, 255, (8, 8), "uint8")
                Image.fromarray(pixels).save(tmp_path / "photos" / part / name / f"{i}.png")
    options = ("--model.img-size", "8", "--model.patch-size", "4", "--augment.crop", "0", *TINY)
    printed = [
        tinyvit("train", "folder", "--out", "run", "--data-dir", "photos", *options),
        tinyvit("evaluate", "run", "--confusion", "c.png"),
        tinyvit("predict", "run", "photos/test/plain/0.png"),
        tinyvit("inspect", "run", "--out", "seen"),
    ]
    assert [status for status, _, _ in printed] == [0] * 4
    shutil.rmtree(tmp_path / "photos/test" / names[0])
    printed += [tinyvit("evaluate", "run"), tinyvit("train", "folder", "--data-dir", "photos", *options)]
    assert [status for status, _, _ in printed[4:]] == [2, 2]
    for _, out, err in printed:
        assert all(line.isprintable() for line in (*out.split("\n"), *err.split("\n")))
    assert all(r"a\x1b[31m" in out + err for _, out, err in (printed[1], printed[2], printed[4], printed[5]))


