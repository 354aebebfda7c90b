"""CIFAR-10 and CIFAR-100 by name: their tables, and the folders and archives that a user may have."""

import re

import pytest
from small_cifar import archive, assert_same_images, small, write_folder, write_parquet

from tinyvit import data
from tinyvit.data.cifar import CIFAR10, CIFAR100, CIFARS
from tinyvit.data.cifar_files import PARQUET

TEN, CONTENTS = small(CIFAR10)
HUNDRED, HUNDRED_CONTENTS = small(CIFAR100)
*TRAIN, TEST = TEN.names
SIZE = 3 * 3073


@pytest.fixture(autouse=True)
def few_images(monkeypatch):
    """Small data sets in place of the real ones."""
    for spec in (TEN, HUNDRED):
        monkeypatch.setitem(CIFARS, spec.name, spec)


@pytest.mark.parametrize(
    ("spec", "contents"), [(TEN, CONTENTS), (HUNDRED, HUNDRED_CONTENTS)], ids=["cifar10", "cifar100"]
)
@pytest.mark.parametrize(
    "form", ["folder", "folder of the folder", "archive", "archive of another name", "folder of the archive", "parquet"]
)
def test_every_form_gives_the_same_images_in_the_same_order(tmp_path, spec, contents, form):
    path = tmp_path / "archive.tgz" if "name" in form else tmp_path / spec.archive if form == "archive" else tmp_path
    if form.startswith("folder of the folder"):
        write_folder(spec, contents, tmp_path / spec.folder)
    elif form == "folder":
        write_folder(spec, contents, tmp_path)
    elif form == "parquet":
        write_parquet(spec, contents, tmp_path)
    else:
        (path / spec.archive if path.is_dir() else path).write_bytes(archive(spec, contents))
    assert_same_images(data.load(spec.name, str(path)), spec, contents)


def test_without_a_path_they_come_from_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TINYVIT_DATA", str(tmp_path))
    write_folder(TEN, CONTENTS, tmp_path / TEN.folder)
    assert_same_images(data.load("cifar10"), TEN, CONTENTS)


def test_classes_are_named_in_the_official_order():
    assert [CIFAR10.classes[i] for i in (0, 3, 9)] == ["airplane", "cat", "truck"]
    assert list(CIFAR100.classes) == sorted(set(CIFAR100.classes)) and len(CIFAR100.classes) == 100


@pytest.mark.parametrize("name", [TRAIN[0], TEST])
def test_a_missing_file_is_named(tmp_path, name):
    write_folder(TEN, CONTENTS, tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(ValueError, match=f"lacks {name}; CIFAR-10 has {TRAIN[0]}, "):
        data.load("cifar10", tmp_path)


@pytest.mark.parametrize("size", [SIZE - 1, 1 << 40])
def test_a_file_that_is_too_short_or_too_long_is_named_with_both_sizes(tmp_path, size):
    write_folder(TEN, CONTENTS, tmp_path)
    with (tmp_path / TRAIN[2]).open("wb") as file:
        file.truncate(size)  # takes no room on the disk
    with pytest.raises(ValueError, match=rf"data_batch_3\.bin has {min(size, SIZE + 1):,} bytes, expected 9,219"):
        data.load("cifar10", tmp_path)


def test_a_folder_of_something_else_is_refused_with_what_is_expected(tmp_path):
    (tmp_path / "data_batch_1").write_bytes(b"pickled")
    with pytest.raises(ValueError, match=f"holds no CIFAR-10; expected {TEST}.*{TEN.archive}.* a pickle can run code"):
        data.load("cifar10", tmp_path)
    write_folder(TEN, CONTENTS, tmp_path)
    with pytest.raises(ValueError, match=r"holds no CIFAR-100; expected test\.bin and its like"):
        data.load("cifar100", tmp_path)
    with pytest.raises(ValueError, match="nowhere doesn't exist; expected test_batch.bin and its like"):
        data.load("cifar10", tmp_path / "nowhere")


@pytest.mark.parametrize("spec", [CIFAR10, CIFAR100], ids=lambda spec: spec.name)
def test_the_table_of_a_data_set_fits_together(spec):
    assert sum(part.images for part in spec.parts[:-1]) == 50_000 and spec.parts[-1].images == 10_000
    assert len(spec.classes) == len(set(spec.classes))
    assert len(spec.mean) == len(spec.std) == 3
    parquet, official = spec.sources
    assert [address.rsplit("/", 1)[-1] for address in (*parquet, *official)] == [*PARQUET, spec.archive]
    for address, checksum in (parquet | official).items():
        assert address.startswith("https://") and re.fullmatch("[0-9a-f]{64}", checksum)
