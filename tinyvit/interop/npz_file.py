"""The arrays of a NumPy `.npz`, a zip of `.npy` files: mapped if not compressed, else unpacked one at a time.

`numpy.load` would unpack all of them, and trusts the sizes in the headers.
"""

import zipfile
import zlib
from collections import Counter
from contextlib import contextmanager
from functools import cache
from pathlib import PurePosixPath
from typing import NamedTuple

import numpy as np

from tinyvit.data.folder import expect_memory
from tinyvit.interop.lazy_arrays import LazyArray, Mapped, listed, size
from tinyvit.text import short

LOCAL_HEADER = 30  # bytes of a member's own header, before its name
MOST_DENSE = 100  # the largest ratio of unpacked to packed bytes: weights are noise, and hardly shrink
SMALL = 1 << 26  # unpacked bytes up to which any ratio is accepted


class Header(NamedTuple):
    """The header of a `.npy`: dtype, shape and order of its array, and its own length in bytes."""

    dtype: np.dtype
    shape: tuple[int, ...]
    fortran: bool
    length: int


def lazy_arrays(path):
    """`LazyArray`s by name. Raises ValueError, naming the file, if it is cut off, damaged or of another format,
    or if what it unpacks to is far more than what weights can."""
    with reading(path), path.open("rb") as file, zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        check_members(path, members)
        headers = {member.filename: read_header(archive, member) for member in members}
        places = {member.filename: data_offset(file, member) for member in members if is_plain(member)}
    mapped, archive = Mapped(path), cache(lambda: zipfile.ZipFile(path))
    arrays = (lazy_array(path, member, headers[member.filename], places, mapped, archive) for member in members)
    return {member.filename.removesuffix(".npy"): array for member, array in zip(members, arrays)}


@contextmanager
def reading(path):
    """Inside this any error of a damaged zip becomes a ValueError that names the file."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:  # zlib, struct, the dtype's parser and others raise errors of every kind
        known = isinstance(error, ValueError) and str(error).startswith(str(path))
        what = "" if known else f"{path} is cut off, damaged or not an .npz: "
        raise ValueError(what + (str(error) if known else short(error or type(error).__name__))) from error


def check_members(path, members):
    """Raise ValueError for members that aren't arrays, that occur twice or that have paths for names, and for
    sizes that weights can't have."""
    names = [member.filename for member in members]
    if not names:
        raise ValueError(f"{path} holds no arrays")
    other = [name for name in names if not name.endswith(".npy")]
    if other:
        raise ValueError(f"{path} is no .npz of arrays: it holds {listed(other)}")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{path} is damaged: it holds {listed(twice)} twice")
    outside = [name for name in names if leads_out(name)]
    if outside:
        raise ValueError(f"{path} isn't to be trusted: it has paths for names, as {listed(outside)}")
    unpacked = sum(member.file_size for member in members if not is_plain(member))
    packed = sum(member.compress_size for member in members if not is_plain(member))
    if unpacked > SMALL and unpacked > MOST_DENSE * packed:
        raise ValueError(f"{path} isn't to be trusted: its {packed:,} bytes unpack to {unpacked:,}, and weights don't")
    expect_memory(unpacked, f"{path} unpacks to")


def leads_out(name):
    """Whether a name, read as a path, would lead out of its folder."""
    path = PurePosixPath(name.replace("\\", "/"))
    return path.is_absolute() or ".." in path.parts or ":" in path.parts[0] or "\0" in name


def is_plain(member):
    return member.compress_type == zipfile.ZIP_STORED and not member.flag_bits & 1  # the flag of an encrypted one


def read_header(archive, member):
    """The `Header` of a member; ValueError if it can't be read, or if the member has another size than it says."""
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"{short(member.filename)} is of version {version} of the .npy format")
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(file)
        length = file.tell()
    if dtype.hasobject:
        raise ValueError(f"{short(member.filename)} holds Python objects, and to read them runs the code in them")
    if length + dtype.itemsize * size(shape) != member.file_size or min(shape, default=0) < 0:
        raise ValueError(f"{short(member.filename)} is {dtype} {short(shape)}, and has {member.file_size:,} bytes")
    return Header(dtype, shape, fortran, length)


def data_offset(file, member):
    """The first byte of a member that was stored as it is."""
    file.seek(member.header_offset)
    header = file.read(LOCAL_HEADER)
    end = file.seek(0, 2)
    first = member.header_offset + LOCAL_HEADER + int.from_bytes(header[26:28], "little")
    first += int.from_bytes(header[28:30], "little")
    if not header.startswith(b"PK\3\4") or first + member.file_size > end or member.compress_size != member.file_size:
        raise ValueError(f"{short(member.filename)} is cut off or damaged")
    return first


def lazy_array(path, member, header, places, mapped, archive):
    """The `LazyArray` of a member; reading it raises ValueError for another checksum than the zip's."""
    # big_vision saves bfloat16 by NumPy, which takes it for two bytes of no meaning.
    dtype = "bfloat16" if header.dtype == np.dtype("V2") else header.dtype.name
    plain = np.dtype("<u2") if dtype == "bfloat16" else header.dtype

    def read():
        if member.filename in places:
            first = places[member.filename]
            if zlib.crc32(mapped.numbers(np.dtype("u1"), member.file_size, first)) != member.CRC:
                raise ValueError(f"{path} is damaged: {short(member.filename)} has another CRC-32 than the zip says")
            flat = mapped.numbers(plain, size(header.shape), first + header.length)
        else:
            with reading(path), archive().open(member) as file:
                content = file.read(member.file_size)
            flat = np.frombuffer(content, plain, size(header.shape), header.length)
        return flat.reshape(header.shape[::-1]).T if header.fortran else flat.reshape(header.shape)

    return LazyArray(header.shape, dtype, read)
