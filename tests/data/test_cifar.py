"""Synthetic CIFAR-10 and CIFAR-100 in their binary layout: the right sizes and labels, random pixels."""

import os
import pickle
import re
import tarfile
from io import BytesIO
from shutil import rmtree

import numpy as np
import pytest
from small_cifar import assert_same_images, small, write_folder

from tinyvit import data
from tinyvit.data.cifar import CIFAR10, CIFAR100, CIFARS
from tinyvit.data.cifar_files import PARQUET

ARCHIVE, CLASSES, FOLDER = CIFAR10.archive, CIFAR10.classes, CIFAR10.folder
*TRAIN, TEST = CIFAR10.names
SIZE = 30_730_000


@pytest.fixture(scope="session")
def contents():
    """The six files as rows (10,000, 3,073): a label, then the planes."""
    generator = np.random.default_rng(0)
    rows = {name: np.frombuffer(generator.bytes(SIZE), "uint8").reshape(10_000, 3073).copy() for name in [*TRAIN, TEST]}
    for content in rows.values():
        content[:, 0] %= 10
    return rows


@pytest.fixture(scope="session")
def folder(contents, tmp_path_factory):
    path = tmp_path_factory.mktemp("cifar") / FOLDER
    path.mkdir()
    for name, content in contents.items():
        content.tofile(path / name)
    yield path
    rmtree(path)  # pytest would keep these 184 MB for three more runs


@pytest.fixture(scope="session")
def archive(folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("archive") / ARCHIVE
    with tarfile.open(path, "w:gz", compresslevel=0) as file:
        file.add(folder, FOLDER)
    yield path
    path.unlink()


@pytest.fixture
def all_but(folder, tmp_path):
    """Makes a folder with links to all the good files except one."""

    def make(name):
        for file in folder.iterdir():
            if file.name != name:
                (tmp_path / file.name).symlink_to(file)
        return tmp_path

    return make


def write_zeros(path, size):
    path.touch()
    os.truncate(path, size)  # takes no room on the disk


@pytest.fixture(params=["folder", "parent", "archive", "folder of the archive"])
def source(request, folder, archive):
    return {
        "folder": folder,
        "parent": folder.parent,
        "archive": archive,
        "folder of the archive": str(archive.parent),
    }[request.param]


@pytest.mark.end_to_end
def test_folder_and_archive_hold_what_was_written(source, contents):
    split = data.cifar10(source)
    assert split.train.images.shape == (50_000, 3, 32, 32) and split.test.images.shape == (10_000, 3, 32, 32)
    parts = [*zip(TRAIN, np.split(split.train.images, 5), np.split(split.train.labels, 5))]
    for name, images, labels in [*parts, (TEST, split.test.images, split.test.labels)]:
        np.testing.assert_array_equal(labels, contents[name][:, 0])
        np.testing.assert_array_equal(images.reshape(10_000, -1), contents[name][:, 1:])


def test_pixels_are_read_plane_by_plane_and_row_by_row(folder, contents):
    image = data.cifar10(folder).train.images[7]
    record = contents[TRAIN[0]][7]
    for channel, row, column in [(0, 0, 1), (0, 1, 0), (1, 0, 0), (2, 31, 30)]:
        assert image[channel, row, column] == record[1 + 1024 * channel + 32 * row + column]


def test_classes_are_named_in_the_official_order(folder):
    assert data.cifar10(folder).test.classes == CLASSES
    assert CLASSES[0] == "airplane" and CLASSES[3] == "cat" and CLASSES[9] == "truck"


@pytest.mark.parametrize("name", [TRAIN[0], TRAIN[4], TEST])
def test_a_missing_file_is_named(all_but, name):
    with pytest.raises(ValueError, match=f"{name} is missing"):
        data.cifar10(all_but(name))


@pytest.mark.parametrize("size", [0, SIZE - 1, SIZE + 1])
def test_a_file_that_is_too_short_or_too_long_is_named_with_both_sizes(all_but, size):
    path = all_but(TRAIN[2])
    write_zeros(path / TRAIN[2], size)
    with pytest.raises(ValueError, match=rf"data_batch_3\.bin has {size:,} bytes, expected 30,730,000"):
        data.cifar10(path)


def test_a_label_out_of_range_is_named_with_its_place(all_but):
    path = all_but(TEST)
    write_zeros(path / TEST, SIZE)
    with (path / TEST).open("r+b") as file:
        file.seek(42 * 3073)
        file.write(b"\x0a")
    with pytest.raises(ValueError, match=r"test_batch\.bin has label 10 at image 42, expected 0 to 9"):
        data.cifar10(path)


@pytest.fixture(params=[0.0, 1e-7, 0.1, 0.999])
def cut_off(request, archive, tmp_path):
    path = tmp_path / ARCHIVE
    with archive.open("rb") as file:
        path.write_bytes(file.read(int(request.param * archive.stat().st_size)))
    yield path
    path.unlink()


def test_a_truncated_archive_is_refused(cut_off):
    with pytest.raises(ValueError, match=r"cut off or no \.tar\.gz archive"):
        data.cifar10(cut_off)


@pytest.fixture
def flipped_bit(archive):
    """The archive with one bit of a pixel flipped, which its checksum reveals."""

    def flip():
        with archive.open("r+b") as file:
            file.seek(SIZE)
            byte = file.read(1)[0]
            file.seek(SIZE)
            file.write(bytes([byte ^ 1]))

    flip()
    yield archive
    flip()


def test_an_archive_with_a_wrong_checksum_is_refused(flipped_bit):
    with pytest.raises(ValueError, match=ARCHIVE):
        data.cifar10(flipped_bit)


@pytest.mark.parametrize("content", [b"PK\x03\x04" * 1000, b"\x1f\x8b" + bytes(1000), b"<html>not found</html>"])
def test_a_file_that_is_not_an_archive_is_refused(tmp_path, content):
    path = tmp_path / ARCHIVE
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{ARCHIVE} is cut off or no \.tar\.gz archive"):
        data.cifar10(path)


def archive_of(path, names, kind=tarfile.REGTYPE):
    """A tar.gz of small files, or of links, under any names."""
    with tarfile.open(path, "w:gz") as file:
        for name in names:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/"
            member.size = 5 if kind == tarfile.REGTYPE else 0
            file.addfile(member, BytesIO(b"bytes"))
    return path


def test_an_archive_of_something_else_is_refused(tmp_path):
    path = archive_of(tmp_path / ARCHIVE, ["other/readme.txt", FOLDER + "/" + TEST])
    with pytest.raises(ValueError, match=r"lacks data_batch_1.bin, .*, data_batch_5.bin; expected"):
        data.cifar10(path)


@pytest.mark.parametrize("prefix", ["../../", "{outside}/", "a/../../"])
@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_nothing_is_written_whatever_names_an_archive_holds(tmp_path, monkeypatch, prefix, kind):
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    names = [prefix.format(outside=tmp_path) + name for name in [*TRAIN, TEST, "passwd"]]
    path = archive_of(inside / ARCHIVE, names, kind)
    with pytest.raises(ValueError, match=r"lacks|has 5 bytes"):
        data.cifar10(path)
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "a", inside, path]


class Bomb:
    """Raises an error when it is unpickled."""

    def __reduce__(self):
        return exec, ("raise SystemError('unpickled')",)


@pytest.mark.parametrize("inner", ["", "cifar-10-batches-py"])
def test_the_python_version_is_refused_and_never_unpickled(tmp_path, inner):
    (tmp_path / inner).mkdir(exist_ok=True)
    (tmp_path / inner / "data_batch_1").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(ValueError, match=r"Python version .* pickles can run code.*get the binary version"):
        data.cifar10(tmp_path)


def test_an_empty_folder_is_refused_with_what_is_expected(tmp_path):
    with pytest.raises(ValueError, match=f"holds no CIFAR-10; expected {TEST}.*{ARCHIVE}"):
        data.cifar10(tmp_path)


def test_a_path_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(ValueError, match="nowhere doesn't exist; expected a folder"):
        data.cifar10(tmp_path / "nowhere")


# -- CIFAR-100 --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fine_folder(tmp_path_factory):
    """CIFAR-100's files; image i has coarse class i mod 20, fine class i mod 100, and all pixels equal to i."""
    path = tmp_path_factory.mktemp("cifar100") / CIFAR100.folder
    path.mkdir()
    for name, images in (("train.bin", 50_000), ("test.bin", 10_000)):
        number = np.arange(images)
        rows = np.empty((images, 3074), "uint8")
        rows[:, 0], rows[:, 1], rows[:, 2:] = number % 20, number % 100, (number % 256)[:, None]
        rows.tofile(path / name)
    yield path
    rmtree(path)


def test_cifar100_is_labelled_by_its_fine_classes(fine_folder):
    for dataset, images in zip(data.cifar100(fine_folder.parent), (50_000, 10_000)):
        number = np.arange(images)
        assert dataset.images.shape == (images, 3, 32, 32) and len(dataset.classes) == 100
        np.testing.assert_array_equal(dataset.labels, number % 100)
        np.testing.assert_array_equal(dataset.images[:, 2, 31, 31], number % 256)


def test_the_fine_classes_are_named_in_the_official_order_which_is_alphabetical():
    assert list(CIFAR100.classes) == sorted(set(CIFAR100.classes)) and len(CIFAR100.classes) == 100
    assert [CIFAR100.classes[i] for i in (0, 19, 49, 99)] == ["apple", "cattle", "mountain", "worm"]


@pytest.mark.parametrize(("byte", "value", "kind"), [(0, 20, "coarse label"), (1, 100, "fine label")])
def test_either_label_out_of_range_is_named_with_its_place(fine_folder, tmp_path, byte, value, kind):
    (tmp_path / "train.bin").symlink_to(fine_folder / "train.bin")
    rows = np.zeros((10_000, 3074), "uint8")
    rows[42, byte] = value
    rows.tofile(tmp_path / "test.bin")
    with pytest.raises(ValueError, match=rf"test\.bin has {kind} {value} at image 42, expected 0 to {value - 1}"):
        data.cifar100(tmp_path)


def test_cifar10_in_the_place_of_cifar100_is_refused(folder):
    with pytest.raises(ValueError, match=r"holds no CIFAR-100; expected test\.bin and its like"):
        data.cifar100(folder)


# -- the tables -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [CIFAR10, CIFAR100], ids=lambda spec: spec.name)
def test_the_table_of_a_data_set_fits_together(spec):
    assert sum(part.images for part in spec.parts[:-1]) == 50_000 and spec.parts[-1].images == 10_000
    assert spec.labels[-1].values == len(spec.classes) == len(set(spec.classes))
    assert len(spec.mean) == len(spec.std) == 3
    parquet, official = spec.sources
    assert [address.rsplit("/", 1)[-1] for address in (*parquet, *official)] == [*PARQUET, spec.archive]
    for address, checksum in (parquet | official).items():
        assert address.startswith("https://") and re.fullmatch("[0-9a-f]{64}", checksum)


def test_without_a_path_they_come_from_the_cache(tmp_path, monkeypatch):
    for spec in (CIFAR10, CIFAR100):
        made_up, contents = small(spec)
        monkeypatch.setitem(CIFARS, spec.name, made_up)
        write_folder(made_up, contents, tmp_path / spec.folder)
        monkeypatch.setenv("TINYVIT_DATA", str(tmp_path))
        assert_same_images(data.load(spec.name), made_up, contents)
