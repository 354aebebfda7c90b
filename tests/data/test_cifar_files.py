"""Malformed and hostile files that claim to be CIFAR-10 or CIFAR-100."""

import gzip
import io
import random
import struct
import subprocess
import sys
import tarfile
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_cifar import archive, assert_same_images, png, small, write_folder, write_parquet

from tinyvit.data import cifar, cifar_files
from tinyvit.data.cifar import CIFAR10, CIFAR100
from tinyvit.data.cifar_files import PARQUET

TEN, TEN_CONTENTS = small(CIFAR10, images=1)
HUNDRED, HUNDRED_CONTENTS = small(CIFAR100, images=2)
BOTH = pytest.mark.parametrize(
    ("spec", "contents"), [(TEN, TEN_CONTENTS), (HUNDRED, HUNDRED_CONTENTS)], ids=["cifar10", "cifar100"]
)


def read(spec, path):
    return cifar.as_split(spec, cifar_files.read(spec, path))


@BOTH
@pytest.mark.parametrize("form", ["folder", "archive", "parquet"])
def test_every_form_gives_the_same_images_in_the_same_order(tmp_path, spec, contents, form):
    if form == "folder":
        write_folder(spec, contents, tmp_path / spec.folder)
    elif form == "archive":
        (tmp_path / spec.archive).write_bytes(archive(spec, contents))
    else:
        write_parquet(spec, contents, tmp_path)
    assert_same_images(read(spec, tmp_path), spec, contents)
    assert cifar_files.is_official(spec, cifar_files.read(spec, tmp_path))


@given(seed=st.integers(0, 1000), place=st.integers(0, 3072 * 6 - 1))
def test_data_with_one_changed_byte_are_not_official(seed, place):
    rows = cifar_files.checked(TEN, TEN_CONTENTS)
    name = TEN.names[place // 3072]
    changed = rows[name].copy()
    changed[0, 1 + place % 3072] ^= 1 + seed % 255
    assert cifar_files.is_official(TEN, rows)
    assert not cifar_files.is_official(TEN, rows | {name: changed})


# -- the archive ------------------------------------------------------------------------------------------------------


def refused(path, spec=TEN):
    """The error for a refused file, which must be read in bounded memory."""
    tracemalloc.start()
    try:
        with pytest.raises(ValueError) as error:
            cifar_files.read(spec, path)
        assert tracemalloc.get_traced_memory()[1] < 64e6
    finally:
        tracemalloc.stop()
    return str(error.value)


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


def test_flipped_bits_of_tar_headers_are_refused_unless_no_image_changes(tmp_path):
    """With gzip's checksum corrected. A tar header's own checksum can be written in more than one way."""
    plain, path = bytearray(gzip.decompress(archive(HUNDRED, HUNDRED_CONTENTS))), tmp_path / HUNDRED.archive
    headers = [place for place in range(0, len(plain), 512) if plain[place + 257 : place + 262] == b"ustar"]
    for header in headers:
        for offset in range(512):
            flipped = plain.copy()
            flipped[header + offset] ^= 1 << offset % 8
            path.write_bytes(gzip.compress(flipped, 0))
            try:
                split = read(HUNDRED, path)
            except ValueError as error:
                assert HUNDRED.archive in str(error)
            else:
                assert_same_images(split, HUNDRED, HUNDRED_CONTENTS)
                assert 148 <= offset < 156


TYPES = [b"0", b"5", b"L", b"K", b"x", b"g", b"S", b"X", b"7", b"2"]
PAX_NAMES = ["size", "path", "mtime", "hdrcharset", "GNU.sparse.map", "GNU.sparse.major", "GNU.sparse.realsize"]
PAX_VALUES = ["-1", "x", "1,2,3", "9" * 20, "1", "BINARY", "nan"]


@given(
    name=st.sampled_from(["x", f"{TEN.folder}/{TEN.names[0]}"]),
    kind=st.sampled_from(TYPES),
    size=st.sampled_from([0, 1, 11, 511, 512, 3073, 10_000]),
    pax=st.dictionaries(st.sampled_from(PAX_NAMES), st.sampled_from(PAX_VALUES), max_size=1),
    changes=st.lists(st.tuples(st.integers(0, 511), st.integers(0, 255)), max_size=10),
    record=st.sampled_from([b"", b"12 size=-1\n", b"6 a=b\n", b"-1 a=b\n", b"0 a=b\n"]),
    rest=st.sampled_from([b"", gzip.decompress(archive(TEN, TEN_CONTENTS)), random.Random(0).randbytes(3000)]),
)
def test_whatever_a_tar_header_says_the_archive_is_read_or_refused(
    tmp_path_factory, name, kind, size, pax, changes, record, rest
):
    """Headers of every type with arbitrary bytes and a right checksum, followed by arbitrary bytes."""
    member = tarfile.TarInfo(name)
    member.type, member.size, member.pax_headers = kind, size, pax
    start = member.tobuf(tarfile.PAX_FORMAT)
    block = bytearray(start[-512:])
    for place, value in changes:
        block[place] = value
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    path = tmp_path_factory.getbasetemp() / TEN.archive
    path.write_bytes(gzip.compress(start[:-512] + bytes(block) + record + rest, 1))
    try:
        cifar_files.read(TEN, path)
    except ValueError as error:
        assert TEN.archive in str(error) or "it is cut off or not CIFAR-10" in str(error)


def header(name, kind=tarfile.REGTYPE, size=0, form=tarfile.GNU_FORMAT):
    member = tarfile.TarInfo(name)
    member.type, member.size = kind, size
    return member.tobuf(form)


def padded(content):
    return content + bytes(-len(content) % 512)


ZEROS = bytes(1 << 20)
FILE = f"{TEN.folder}/{TEN.names[0]}"
RECORDS = b"".join(b"%d k%06d=v\n" % (13, i) for i in range(100_000))


def bomb(start, block, size=2_000_000_000):
    """A small .tar.gz that unpacks to `start` and then 2 GB: concatenated gzip files unpack as one."""
    return gzip.compress(start) + gzip.compress(block) * (size // len(block) if block else 0)


BOMBS = {
    "a member said to be of 8 EB": (header("x", size=1 << 63) + bytes(5000), b""),
    "an image file said to be of 8 EB": (header(FILE, size=1 << 63) + bytes(5000), b""),
    "a giant member": (header("big", size=8_000_000_000), ZEROS),
    "a giant image file": (header(FILE, size=8_000_000_000), ZEROS),
    "a giant long name": (header("x", tarfile.GNUTYPE_LONGNAME, 8_000_000_000), ZEROS),
    "a giant long link": (header("x", tarfile.GNUTYPE_LONGLINK, 8_000_000_000), ZEROS),
    "a giant pax header": (header("x", tarfile.XHDTYPE, 8_000_000_000), RECORDS),
    "a giant global pax header": (header("x", tarfile.XGLTYPE, 8_000_000_000), RECORDS),
    "an old Solaris header": (header("x", tarfile.SOLARIS_XHDTYPE, 8_000_000_000), RECORDS),
    "members without end": (b"", header("x") * 2048),
    "folders without end": (b"", header("x/", tarfile.DIRTYPE) * 2048),
    "long names without end": (b"", (header("x", tarfile.GNUTYPE_LONGNAME, 5) + padded(b"name")) * 1024),
    "pax headers without end": (b"", (header("x", tarfile.XHDTYPE, 11) + padded(b"11 path=ab\n")) * 1024),
    "global headers without end": (
        b"", b"".join(header("x", tarfile.XGLTYPE, 13) + padded(b"13 k%05d=vv\n" % i) for i in range(1024))
    ),
    "zeros after the end": (bytes(1024), ZEROS),
    "the same file again and again": (b"", (header(FILE, size=3073) + padded(TEN_CONTENTS[TEN.names[0]])) * 300),
}  # fmt: skip


@pytest.mark.parametrize(("start", "block"), BOMBS.values(), ids=BOMBS)
def test_archives_that_unpack_without_end_are_refused_in_little_memory(tmp_path, start, block):
    path = tmp_path / TEN.archive
    path.write_bytes(bomb(start, block))
    assert TEN.archive in refused(path)


def test_a_sparse_member_is_not_taken_for_a_file(tmp_path):
    """Its zeros are not in the archive, so a header of 512 bytes could claim any size."""
    block = bytearray(header(FILE, tarfile.GNUTYPE_SPARSE, 0))
    block[386:398], block[398:410] = b"00000000000\0", b"00000000000\0"
    block[483:495] = b"%011o\0" % 3073
    block[148:156] = b"        "
    block[148:156] = b"%06o\0 " % sum(block)
    path = tmp_path / TEN.archive
    path.write_bytes(gzip.compress(bytes(block) + bytes(1024)))
    assert "lacks data_batch_1.bin" in refused(path)


def test_links_with_the_right_names_are_not_taken_for_files(tmp_path):
    path = tmp_path / TEN.archive
    with tarfile.open(path, "w:gz") as file:
        for name in TEN.names:
            for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE):
                member = tarfile.TarInfo(name)
                member.type, member.linkname = kind, "/etc/passwd"
                file.addfile(member)
    assert "lacks data_batch_1.bin" in refused(path)


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
        ({"label": [10]}, r"image 0 has label 10, expected 0 to 9"),
        ({"label": [-1]}, r"image 0 has label -1, expected 0 to 9"),
        ({"label": [None]}, r"image 0 has label None, expected 0 to 9"),
        ({"label": ["cat"]}, r"image 0 has label cat, expected 0 to 9"),
        ({"label": None}, r"has no column label: it is not CIFAR-10"),
        ({"img": None}, r"has no column img: it is not CIFAR-10"),
        ({"img": ["text"]}, r"image 0 is no PNG"),
        ({"img": [{"bytes": None, "path": "a.png"}]}, r"image 0 is no PNG"),
        ({"img": [{"path": "a.png"}]}, r"image 0 is no PNG"),
        ({"img": [{"bytes": b"GIF89a" + bytes(99)}]}, r"image 0 is no PNG"),
        ({"img": [{"bytes": png(ROW)[:-40]}]}, r"image 0 is no PNG"),
        ({"img": [{"bytes": resized(31, 32)}]}, r"image 0 is no PNG of 32×32 RGB pixels \(it is 31×32"),
        ({"img": [{"bytes": resized(60_000, 60_000)}]}, r"image 0 is no PNG"),
        ({"img": [{"bytes": png(ROW)}] * 2, "label": [1, 2]}, r"has 2 rows, expected 1: it is not CIFAR-10"),
    ],
)
def test_a_parquet_file_of_something_else_is_refused(damaged_parquet, columns, message):
    with pytest.raises(ValueError, match=message):
        cifar_files.read(TEN, damaged_parquet(**columns))


def test_every_truncation_of_a_parquet_file_is_refused(tmp_path):
    write_parquet(TEN, TEN_CONTENTS, tmp_path)
    content = (tmp_path / PARQUET[1]).read_bytes()
    for length in range(0, len(content), 61):
        (tmp_path / PARQUET[1]).write_bytes(content[:length])
        with pytest.raises(ValueError, match=f"{PARQUET[1]}"):
            cifar_files.read(TEN, tmp_path)


REPEATED = """
import sys
from pathlib import Path
from small_cifar import small
from tinyvit.data import cifar_files
from tinyvit.data.cifar import CIFAR10

spec, _ = small(CIFAR10, images=2000)
try:
    cifar_files.read(spec, Path(sys.argv[1]))
except ValueError as error:
    print(error)
print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])  # kB; ru_maxrss is inherited
"""


@pytest.mark.end_to_end
@pytest.mark.parametrize("column", ["img", "path", "label"])
@pytest.mark.parametrize("megabytes", [8, 80])
def test_a_text_that_all_rows_of_a_parquet_file_repeat_takes_memory_once_or_is_refused(tmp_path, column, megabytes):
    """Some kilobytes, which unpack to 10,000 times as many megabytes."""
    import pyarrow as pa
    from pyarrow import parquet

    rows = np.zeros(10_000, "int32")
    long = pa.DictionaryArray.from_arrays(rows, pa.array([bytes(megabytes << 20)]))
    image = pa.DictionaryArray.from_arrays(rows, pa.array([png(ROW)]))
    img = [long if column == "img" else image, long if column == "path" else pa.array(rows)]
    columns = {"img": pa.StructArray.from_arrays(img, ["bytes", "path"]), "label": long if column == "label" else rows}
    file = tmp_path / PARQUET[0]
    parquet.write_table(pa.table(columns), file, compression="zstd", dictionary_pagesize_limit=1 << 30,
                        store_schema=False)  # fmt: skip
    assert file.stat().st_size < 50_000
    command = [sys.executable, "-c", REPEATED, str(tmp_path)]
    tests = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=tests, capture_output=True, text=True, timeout=100, check=True)
    message, peak = done.stdout.splitlines()
    assert str(file) in message if column != "path" or megabytes > 8 else PARQUET[1] in message
    assert int(peak) < 700_000, "kB"


def test_a_parquet_file_whose_rows_are_lists_is_refused_before_they_are_unpacked(damaged_parquet):
    with pytest.raises(ValueError, match=r"has lists in its column label"):
        cifar_files.read(TEN, damaged_parquet(label=[[7] * 100_000]))


DAMAGED = """
import random, sys
from pathlib import Path
from mutations import mutated
from small_cifar import small, write_parquet
from tinyvit.data import cifar_files
from tinyvit.data.cifar import CIFAR10

spec, contents = small(CIFAR10, images=1)
folder, draw = Path(sys.argv[1]), random.Random(3)
file = write_parquet(spec, contents, folder) / cifar_files.PARQUET[1]
whole = file.read_bytes()
footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
for _ in range(1000):
    file.write_bytes(whole[:footer] + mutated(whole[footer:-8], draw) + whole[-8:])
    try:
        cifar_files.read(spec, folder)
    except ValueError as error:
        assert str(file) in str(error) and len(str(error).splitlines()) == 1, error
"""


@pytest.mark.end_to_end
def test_damaged_metadata_of_a_parquet_file_are_refused_in_one_line_and_never_end_the_process(tmp_path):
    command = [sys.executable, "-c", DAMAGED, str(tmp_path)]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr


def test_a_parquet_file_that_is_missing_is_named(tmp_path):
    write_parquet(TEN, TEN_CONTENTS, tmp_path)
    (tmp_path / PARQUET[1]).unlink()
    with pytest.raises(ValueError, match=rf"{PARQUET[1]} is missing; the parquet copy of CIFAR-10 has"):
        cifar_files.read(TEN, tmp_path)


def test_without_pyarrow_the_message_names_the_extra(tmp_path, monkeypatch):
    write_parquet(TEN, TEN_CONTENTS, tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValueError, match=r"pip install 'tinyvit\[parquet\]'"):
        cifar_files.read(TEN, tmp_path)
