"""Control characters in names of files and classes are escaped in all that is printed."""

import shutil
import sys

import numpy as np
import pytest
from PIL import Image

STRANGE = "a\x1b[31m\nb\u202egnp.png"  # red, a line end, and from right to left
ESCAPED = r"a\x1b[31m\nb\u202egnp.png"
TINY = ("--epochs", "1", "--model.embed-dim", "16", "--model.depth", "1", "--model.num-heads", "2")


def test_control_characters_in_names_are_escaped_in_output_and_errors(tinyvit, refused, run, tmp_path):
    Image.new("L", (8, 8)).save(tmp_path / STRANGE)
    (tmp_path / f"broken{STRANGE}").write_bytes(b"")
    status, out, err = tinyvit("predict", run, STRANGE, f"broken{STRANGE}")
    assert status == 2 and out.startswith(f"{ESCAPED}\n")
    assert err.startswith(f"tinyvit: error: broken{ESCAPED} can't be read as an image")
    assert all(line.isprintable() for line in (*out.splitlines(), *err.splitlines()))
    for command in (("evaluate",), ("train", "digits", "--out"), ()):
        line = refused(*command, STRANGE)
        assert ESCAPED in line or repr(STRANGE)[1:-1] in line


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
