"""Malformed and hostile files that claim to be CIFAR-10 or CIFAR-100."""

import io
import sys
import tarfile

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


def test_data_with_one_changed_byte_are_not_official():
    rows = {name: cifar_files.records(TEN, name, content) for name, content in TEN_CONTENTS.items()}
    assert cifar_files.is_official(TEN, rows)
    rows[TEN.names[3]] = rows[TEN.names[3]] ^ np.eye(1, TEN.record, 1234, "uint8")
    assert not cifar_files.is_official(TEN, rows)


# -- the archive ------------------------------------------------------------------------------------------------------


def test_every_truncation_of_an_archive_is_refused(tmp_path):
    content, path = archive(TEN, TEN_CONTENTS), tmp_path / TEN.archive
    lengths = {*range(200), *range(len(content) - 200, len(content)), *range(0, len(content), 97)}
    for length in lengths:
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match=f"{TEN.archive} can't be read as CIFAR-10: ."):
            cifar_files.read(TEN, path)


def test_a_path_in_an_archive_is_only_a_name(tmp_path):
    """The files are read into memory and nothing is written."""
    path = tmp_path / TEN.archive
    with tarfile.open(path, "w:gz") as file:
        for name, content in TEN_CONTENTS.items():
            member = tarfile.TarInfo("../../../x/" + name)
            member.size = len(content)
            file.addfile(member, io.BytesIO(content))
    assert_same_images(read(TEN, path), TEN, TEN_CONTENTS)
    assert [file.name for file in tmp_path.rglob("*")] == [TEN.archive]


def test_an_archive_without_one_of_the_files_is_refused(tmp_path):
    names = {name: content for name, content in TEN_CONTENTS.items() if name != TEN.names[3]}
    (tmp_path / TEN.archive).write_bytes(archive(TEN, names))
    with pytest.raises(ValueError, match=f"{TEN.archive} lacks {TEN.names[3]}; CIFAR-10 has"):
        cifar_files.read(TEN, tmp_path)


@pytest.mark.parametrize("content", [b"PK\x03\x04" * 1000, b"\x1f\x8b" + bytes(1000), b"<html>not found</html>"])
def test_a_file_that_is_not_an_archive_is_refused(tmp_path, content):
    (tmp_path / TEN.archive).write_bytes(content)
    with pytest.raises(ValueError, match=f"{TEN.archive} can't be read as CIFAR-10: ."):
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


ROW = np.frombuffer(TEN_CONTENTS[TEN.names[-1]], "uint8")


@pytest.mark.parametrize(("columns", "message"), [
    ({"label": [300]}, "uint8"),
    ({"label": None}, "label"),
    ({"img": [{"bytes": b"GIF89a" + bytes(99)}]}, "expected AVIF, "),
    ({"img": [{"bytes": png(ROW)[:-40]}]}, "."),
    ({"img": [{"bytes": png(ROW[:769], side=16)}]}, r"has images \(1, 16, 16, 3\), expected \(1, 32, 32, 3\)"),
    ({"img": [{"bytes": png(ROW)}] * 2, "label": [1, 2]}, r"has images \(2, 32, 32, 3\), expected \(1, 32, 32, 3\)"),
    (None, f"FileNotFoundError.*{PARQUET[1]}"),
])  # fmt: skip
def test_a_parquet_file_of_something_else_or_none_is_refused(tmp_path, columns, message):
    from pyarrow import parquet, table

    write_parquet(TEN, TEN_CONTENTS, tmp_path)
    if columns is None:
        (tmp_path / PARQUET[1]).unlink()
    else:
        columns = {"img": [{"bytes": png(ROW), "path": None}], "label": [3]} | columns
        columns = {name: column for name, column in columns.items() if column is not None}
        parquet.write_table(table(columns), tmp_path / PARQUET[1])
    with pytest.raises(ValueError, match=rf"{tmp_path} can't be read as CIFAR-10: .*{message}"):
        cifar_files.read(TEN, tmp_path)


def test_without_pyarrow_the_message_names_the_extra(tmp_path, monkeypatch):
    write_parquet(TEN, TEN_CONTENTS, tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValueError, match=r"pip install 'tinyvit\[parquet\]'"):
        cifar_files.read(TEN, tmp_path)
