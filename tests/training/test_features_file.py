import errno
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

from tinyvit.training.features import FileFeatures
from tinyvit.training.features_file import check_new_files, save_features


def rows_of(array):
    return (FileFeatures(f"{i}.png", row) for i, row in enumerate(array))


@given(n=st.sampled_from([1, 2, 9, 10, 11, 1000]), D=st.integers(1, 5), seed=seeds())
def test_saved_features_are_loaded_again_with_a_name_for_each_row(tmp_path_factory, n, D, seed):
    folder = tmp_path_factory.mktemp("saved")
    array = np.random.default_rng(seed).standard_normal((n, D))
    assert save_features(rows_of(array), folder / "f.npy", folder / "f.txt") == (n, D if n else None)
    for mapped in (None, "r"):
        loaded = np.load(folder / "f.npy", mmap_mode=mapped)
        assert (loaded.dtype, loaded.shape) == ("float32", (n, D))
        np.testing.assert_array_equal(loaded, array.astype("float32"))
    assert (folder / "f.txt").read_text().splitlines() == [f"{i}.png" for i in range(n)]


def test_the_file_is_the_one_that_numpy_would_write(tmp_path):
    array = np.random.default_rng(0).standard_normal((1234, 7)).astype("float32")
    save_features(rows_of(array), tmp_path / "ours.npy", tmp_path / "ours.txt")
    np.save(tmp_path / "numpys.npy", array)
    assert (tmp_path / "ours.npy").read_bytes() == (tmp_path / "numpys.npy").read_bytes()


def test_names_in_any_encoding_are_read_back(tmp_path):
    path = os.fsdecode(b"caf\xe9 \xc3\xa9.png")
    save_features([FileFeatures(path, np.zeros(2))], tmp_path / "f.npy", tmp_path / "f.txt")
    assert os.fsdecode((tmp_path / "f.txt").read_bytes()) == f"{path}\n"


def test_without_rows_nothing_is_written(tmp_path):
    assert save_features([], tmp_path / "f.npy", tmp_path / "f.txt") == (0, None)
    assert not any(tmp_path.iterdir())


def test_an_error_while_writing_leaves_nothing(tmp_path):
    def broken():
        yield FileFeatures("0.png", np.zeros(2))
        raise ValueError("the weights are damaged")

    with pytest.raises(ValueError, match="the weights are damaged"):
        save_features(broken(), tmp_path / "f.npy", tmp_path / "f.txt")
    with pytest.raises(ValueError, match=r"'a\\nb.png' has a line break in its name"):
        save_features([FileFeatures("a\nb.png", np.zeros(2))], tmp_path / "f.npy", tmp_path / "f.txt")
    assert not any(tmp_path.iterdir())


def test_a_full_disk_is_reported_without_the_advice_for_trainings(tmp_path, monkeypatch):
    def full(*paths):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"no room to save .*f\.txt: No space.*make room and run the command again"):
        save_features(rows_of(np.zeros((2, 2))), tmp_path / "f.npy", tmp_path / "f.txt")
    assert not any(tmp_path.iterdir())



def test_output_files_must_be_new_and_in_an_existing_folder(tmp_path):
    assert check_new_files(tmp_path / "f.npy") == (tmp_path / "f.npy", tmp_path / "f.txt")
    assert check_new_files(str(tmp_path / "f.npy"), "n")[1].name == "n"
    for name in ("old.npy", "other.txt"):
        (tmp_path / name).write_bytes(b"precious")
    (tmp_path / "link.npy").symlink_to(tmp_path / "nowhere")
    (tmp_path / "folder.npy").mkdir()
    for out, names, message in (
        ("old.npy", None, "old.npy exists already; remove it, or choose another name with --out"),
        ("link.npy", None, "link.npy exists already"),
        ("folder.npy", None, "folder.npy exists already"),
        ("other.npy", None, "other.txt exists already; remove it, or choose another name with --names"),
        ("f.npy", "other.txt", "other.txt exists already"),
        ("f.npz", None, r"a \.npy file, got --out .*f\.npz; expected a name such as features\.npy"),
        ("nowhere/f.npy", None, "f.npy is in .*nowhere, which doesn't exist"),
        ("f.npy", "nowhere/n", "n is in .*nowhere, which doesn't exist; .*--names"),
        ("old.npy/f.npy", None, r"old\.npy, which doesn't exist"),
        ("f.npy", "f.npy", "features and names would both be written to .*f.npy"),
    ):
        with pytest.raises(ValueError, match=message):
            check_new_files(tmp_path / out, None if names is None else tmp_path / names)


MEASURE = """
import resource, sys
from itertools import repeat
from pathlib import Path
import numpy as np
from PIL import Image
from tinyvit import ViT, ViTConfig
from tinyvit.data.preprocessing import Preprocessing
from tinyvit.training.features import features_of_files
from tinyvit.training.features_file import save_features

folder = Path(sys.argv[1])
Image.new("RGB", (4, 4), "teal").save(folder / "image.png")
model = ViT(ViTConfig(img_size=4, patch_size=2, embed_dim=1024, depth=1, num_heads=1))
prepared = Preprocessing(("cat", "dog"), 3, (4, 4), (0.5,) * 3, (0.5,) * 3)

def saved(count):
    files = features_of_files(model, prepared, repeat(folder / "image.png", count), layer=0, threads=1)
    return save_features(files, folder / f"{count}.npy", folder / f"{count}.txt")[0] == count

for count in (1_000, 10_000):
    assert saved(count)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.end_to_end
def test_ten_thousand_files_take_no_more_memory_than_a_thousand(tmp_path):
    """The features of ten thousand images are 41 MB; the process has about 200 MB."""
    command = [sys.executable, "-c", MEASURE, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    thousand, ten_thousand = map(int, done.stdout.split())
    assert (tmp_path / "10000.npy").stat().st_size > 40e6
    assert ten_thousand < 1.03 * thousand
