"""The files of CIFAR-10 and CIFAR-100 as rows of records, from a folder, the archive, or the parquet copy.

No more is read of a .bin file than the data set has, whatever the file claims.
"""

import gzip
import hashlib
import tarfile
from contextlib import suppress
from importlib.util import find_spec
from io import BytesIO

import numpy as np

from tinyvit.data.images import open_image
from tinyvit.text import shorten

PARQUET = ("train-00000-of-00001.parquet", "test-00000-of-00001.parquet")


def read(spec, path):
    """The records (n, bytes) of every .bin file by name; ValueError if they aren't all there and of the right size."""
    found = locate(spec, path)
    if found is None:
        what = f"holds no {spec.title}" if path.exists() else "doesn't exist"
        raise ValueError(
            f"{path} {what}; expected {spec.names[-1]} and its like, {spec.folder}, or {spec.archive}, the binary "
            "version: the Python version is pickled, and reading a pickle can run code"
        )
    reader, where = found
    try:
        contents = reader(spec, where)
    except Exception as error:  # damaged files make tarfile, zlib, pyarrow and Pillow raise errors of every kind
        what = f"{type(error).__name__}: {shorten(error, 300)}"
        raise ValueError(f"{where} can't be read as {spec.title}: {what}") from error
    missing = [name for name in spec.names if name not in contents]
    if missing:
        raise ValueError(f"{where} lacks {', '.join(missing)}; {spec.title} has {', '.join(spec.names)}")
    return {name: records(spec, name, contents[name]) for name in spec.names}


def locate(spec, path):
    """A reader and its path at `path`; None if nothing there looks like this data set."""
    if path.is_file():
        return read_archive, path
    for folder in (path, path / spec.folder):
        if (folder / spec.names[-1]).exists() or (folder / spec.names[0]).exists():
            return read_folder, folder
    if (path / spec.archive).exists():
        return read_archive, path / spec.archive
    if (path / PARQUET[0]).exists():
        return read_parquet, path
    return None


def records(spec, name, content):
    """The bytes of a file as rows (n, bytes of a record); ValueError for another size than the official file's."""
    if len(content) != spec.size(name):
        raise ValueError(
            f"{name} has {len(content):,} bytes, expected {spec.size(name):,}: it is cut off or not {spec.title}"
        )
    return np.frombuffer(content, np.uint8).reshape(-1, spec.record)


def read_folder(spec, folder):
    """The contents of the .bin files by name."""
    contents = {}
    for name in spec.names:
        with suppress(FileNotFoundError), (folder / name).open("rb") as file:
            contents[name] = file.read(spec.size(name) + 1)
    return contents


def read_archive(spec, path):
    """The .bin files out of the .tar.gz, streamed: nothing is written to disk, whatever paths it names."""
    contents = {}
    with gzip.open(path) as unpacked, tarfile.open(fileobj=unpacked, mode="r|") as archive:
        for member in archive:
            name = member.name.rsplit("/", 1)[-1]
            if name in spec.names and member.isreg():
                contents[name] = archive.extractfile(member).read(spec.size(name) + 1)
        while unpacked.read(1 << 16):  # to the end, where gzip's checksum stands
            pass
    return contents


def read_parquet(spec, folder):
    """The .bin files made anew from the copy at Hugging Face, whose images are PNG files in a column.

    It has the training images file by file, but not in the order of the files. The official checksums identify each
    block; if one doesn't match, all stay in the order in which they came.
    """
    if find_spec("pyarrow") is None:
        raise ValueError(f"it takes the extra parquet (pip install 'tinyvit[parquet]'); or get {spec.archive}")
    from pyarrow.parquet import read_table

    contents = {}
    for name, parts in zip(PARQUET, (spec.parts[:-1], spec.parts[-1:])):
        columns = read_table(folder / name, columns=["img", *spec.labels]).to_pydict()
        images = np.stack([np.asarray(open_image(BytesIO(image["bytes"]))) for image in columns["img"]])
        expected = sum(part.images for part in parts), 32, 32, 3
        if images.shape != expected:
            raise ValueError(f"{name} has images {images.shape}, expected {expected}")
        labels = np.array([columns[label] for label in spec.labels], "uint8").T
        rows = np.concatenate([labels, images.transpose(0, 3, 1, 2).reshape(len(images), -1)], axis=1)
        blocks = np.split(rows, np.cumsum([part.images for part in parts])[:-1])
        by_checksum = {checksum(kind, block): block for kind in ("sha1", "sha256") for block in blocks}
        if all(part.checksum in by_checksum for part in parts):
            blocks = [by_checksum[part.checksum] for part in parts]
        contents |= {part.name: block.tobytes() for part, block in zip(parts, blocks)}
    return contents


def checksum(algorithm, content):
    """A checksum with its algorithm, "sha256:…"."""
    return f"{algorithm}:{hashlib.new(algorithm, content, usedforsecurity=False).hexdigest()}"


def is_official(spec, rows):
    """Whether the records are those of the official files, byte by byte."""
    return all(checksum(part.checksum.split(":")[0], rows[part.name]) == part.checksum for part in spec.parts)
