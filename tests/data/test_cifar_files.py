"""Malformed and hostile files that claim to be CIFAR-10 or CIFAR-100."""

import io
import random
import struct
import sys
import tarfile
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_cifar import archive, assert_same_images, png, small, write_parquet

from tinyvit.data import cifar, cifar_files
from tinyvit.data.cifar import CIFAR10
from tinyvit.data.cifar_files import PARQUET

TEN, TEN_CONTENTS = small(CIFAR10, images=1)


def read(spec, path):
    return cifar.as_split(spec, cifar_files.read(spec, path))


@given(seed=st.integers(0, 1000), place=st.integers(0, 3072 * 6 - 1))
def test_data_with_one_changed_byte_are_not_official(seed, place):
    rows = {name: cifar_files.records(TEN, name, content) for name, content in TEN_CONTENTS.items()}
    name = TEN.names[place // 3072]
    changed = rows[name].copy()
    changed[0, 1 + place % 3072] ^= 1 + seed % 255
    assert cifar_files.is_official(TEN, rows)
    assert not cifar_files.is_official(TEN, rows | {name: changed})


# -- the archive ------------------------------------------------------------------------------------------------------


def test_every_truncation_of_an_archive_is_refused(tmp_path):
    content, path = archive(TEN, TEN_CONTENTS), tmp_path / TEN.archive
    lengths = {*range(200), *range(len(content) - 200, len(content)), *range(0, len(content), 97)}
    for length in lengths:
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"cut off or no \.tar\.gz archive"):
            cifar_files.read(TEN, path)


def test_an_archive_with_a_flipped_bit_is_refused_unless_no_image_changes(tmp_path):
    """Some bits of gzip's header, such as its date, have no effect; the checksum covers the rest."""
    content, path = archive(TEN, TEN_CONTENTS), tmp_path / TEN.archive
    places = {*range(100), *random.Random(0).sample(range(len(content)), 500)}
    passed = []
    for place in places:
        path.write_bytes(content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :])
        try:
            split = read(TEN, path)
        except ValueError:
            continue
        assert_same_images(split, TEN, TEN_CONTENTS)
        passed.append(place)
    assert all(place < 32 for place in passed)


def test_links_with_the_right_names_are_not_taken_for_files(tmp_path):
    path = tmp_path / TEN.archive
    with tarfile.open(path, "w:gz") as file:
        for name in TEN.names:
            for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE):
                member = tarfile.TarInfo(name)
                member.type, member.linkname = kind, "/etc/passwd"
                file.addfile(member)
    with pytest.raises(ValueError, match=r"lacks data_batch_1\.bin"):
        cifar_files.read(TEN, path)


@pytest.mark.parametrize("prefix", ["../../../", "/", "C:\\", "./", "a/b/../../../"])
def test_a_path_in_an_archive_is_only_a_name(tmp_path, prefix):
    """Wherever the paths point, the files are read into memory and nothing is written."""
    path = tmp_path / TEN.archive
    with tarfile.open(path, "w:gz") as file:
        for name, content in TEN_CONTENTS.items():
            member = tarfile.TarInfo(prefix + "x/" + name)
            member.size = len(content)
            file.addfile(member, io.BytesIO(content))
    assert_same_images(read(TEN, path), TEN, TEN_CONTENTS)
    assert [file.name for file in tmp_path.rglob("*")] == [TEN.archive]


@pytest.mark.parametrize("content", [b"PK\x03\x04" * 1000, b"\x1f\x8b" + bytes(1000), b"<html>not found</html>"])
def test_a_file_that_is_not_an_archive_is_refused(tmp_path, content):
    (tmp_path / TEN.archive).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{TEN.archive} is cut off or no \.tar\.gz archive"):
        cifar_files.read(TEN, tmp_path)


# -- the parquet copy -------------------------------------------------------------------------------------------------


@given(order=st.permutations(TEN.names[:-1]))
def test_the_official_order_is_restored_by_the_official_checksums(tmp_path_factory, order):
    folder = write_parquet(TEN, TEN_CONTENTS, tmp_path_factory.mktemp("parquet"), order)
    assert_same_images(read(TEN, folder), TEN, TEN_CONTENTS)


def test_unofficial_images_keep_their_order(tmp_path):
    _, others = small(CIFAR10, seed=1, images=1)
    write_parquet(TEN, others, tmp_path)
    assert_same_images(read(TEN, tmp_path), TEN, others)
    assert not cifar_files.is_official(TEN, cifar_files.read(TEN, tmp_path))


@pytest.fixture
def damaged_parquet(tmp_path):
    """Writes the parquet copy with some columns of the test file replaced."""
    from pyarrow import parquet, table

    def make(**columns):
        write_parquet(TEN, TEN_CONTENTS, tmp_path)
        row = np.frombuffer(TEN_CONTENTS[TEN.names[-1]], "uint8")
        good = {"img": [{"bytes": png(row), "path": None}], "label": [3]}
        changed = {name: column for name, column in (good | columns).items() if column is not None}
        parquet.write_table(table(changed), tmp_path / PARQUET[1])
        return tmp_path

    return make


ROW = np.frombuffer(TEN_CONTENTS[TEN.names[-1]], "uint8")


def resized(width, height):
    """A PNG file whose header gives another size."""
    content = bytearray(png(ROW))
    content[16:24] = struct.pack(">II", width, height)
    content[29:33] = struct.pack(">I", zlib.crc32(content[12:29]))
    return bytes(content)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"label": [10]}, r"expected labels below \[10\], got \[10\]"),
        ({"label": [-1]}, r"expected labels below \[10\], got \[-1\]"),
        ({"label": [None]}, "not supported"),
        ({"label": None}, "label"),
        ({"img": None}, "img"),
        ({"img": [{"bytes": None, "path": "a.png"}]}, "."),
        ({"img": [{"bytes": b"GIF89a" + bytes(99)}]}, "expected PNG"),
        ({"img": [{"bytes": png(ROW)[:-40]}]}, "."),
        ({"img": [{"bytes": resized(31, 32)}]}, "expected 32×32 RGB pixels, got 31×32 RGB"),
        ({"img": [{"bytes": resized(60_000, 60_000)}]}, "pixels"),
        ({"img": [{"bytes": png(ROW)}] * 2, "label": [1, 2]}, "it has 2 rows, expected 1"),
    ],
)
def test_a_parquet_file_of_something_else_is_refused(damaged_parquet, columns, message):
    with pytest.raises(ValueError, match=rf"{PARQUET[1]} is damaged or not CIFAR-10's parquet copy: .*{message}"):
        cifar_files.read(TEN, damaged_parquet(**columns))


def test_every_truncation_of_a_parquet_file_is_refused(tmp_path):
    write_parquet(TEN, TEN_CONTENTS, tmp_path)
    content = (tmp_path / PARQUET[1]).read_bytes()
    for length in range(0, len(content), 61):
        (tmp_path / PARQUET[1]).write_bytes(content[:length])
        with pytest.raises(ValueError, match=f"{PARQUET[1]}"):
            cifar_files.read(TEN, tmp_path)


def test_a_parquet_file_that_is_missing_is_named(tmp_path):
    write_parquet(TEN, TEN_CONTENTS, tmp_path)
    (tmp_path / PARQUET[1]).unlink()
    with pytest.raises(ValueError, match=rf"{PARQUET[1]} is missing; the parquet copy of CIFAR-10 has"):
        cifar_files.read(TEN, tmp_path)


def test_without_pyarrow_the_message_names_the_extra(tmp_path, monkeypatch):
    write_parquet(TEN, TEN_CONTENTS, tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ValueError, match=r"pip install 'tinyvit\[parquet\]'"):
        cifar_files.read(TEN, tmp_path)
