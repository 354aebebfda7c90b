"""The files of CIFAR-10 and CIFAR-100 as rows of records, from a folder, the archive, or the parquet copy.

No more is read of a file than the data set has, whatever the file claims.
"""

import gzip
import hashlib
import tarfile
import zlib
from io import BytesIO

import numpy as np

from tinyvit.data.images import open_image
from tinyvit.text import short

PARQUET = ("train-00000-of-00001.parquet", "test-00000-of-00001.parquet")
PICKLES = ("data_batch_1", "train")
UNREADABLE = (tarfile.TarError, OSError, zlib.error, EOFError, ValueError, ArithmeticError, RecursionError)


def read(spec, path):
    """The records (n, bytes) of every .bin file by name, checked; ValueError if they aren't all there and right."""
    found = locate(spec, path)
    if found is not None:
        reader, where = found
        contents = reader(spec, where)
        return {name: records(spec, name, contents[name]) for name in spec.names}
    pickled = path / spec.folder.replace("batches-bin", "batches-py").replace("binary", "python")
    if any((folder / name).exists() for folder in (path, pickled) for name in PICKLES):
        raise ValueError(
            f"{path} holds the Python version of {spec.title}, whose pickles can run code when they are read; "
            f"get the binary version ({spec.archive})"
        )
    what = f"holds no {spec.title}" if path.exists() else "doesn't exist"
    raise ValueError(f"{path} {what}; expected {spec.names[-1]} and its like, {spec.folder}, or {spec.archive}")


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
    """The bytes of a file as rows (n, bytes of a record), checked."""
    images = spec.size(name) // spec.record
    if len(content) != spec.size(name):
        raise ValueError(
            f"{name} has {len(content):,} bytes, expected {spec.size(name):,} ({images:,} records of "
            f"{spec.record:,} bytes): it is cut off or not {spec.title}"
        )
    rows = np.frombuffer(content, np.uint8).reshape(images, spec.record)
    if (largest := rows[:, len(spec.labels) - 1].max()) >= len(spec.classes):
        raise ValueError(f"{name} has label {largest}, expected 0 to {len(spec.classes) - 1}: it is not {spec.title}")
    return rows


def read_folder(spec, folder):
    """The contents of the .bin files by name."""
    contents = {}
    for name in spec.names:
        if not (folder / name).is_file():
            raise ValueError(f"{folder / name} is missing; {spec.title}'s binary version has {', '.join(spec.names)}")
        with (folder / name).open("rb") as file:
            contents[name] = file.read(spec.size(name) + 1)
    return contents


def read_archive(spec, path):
    """The .bin files out of the archive, streamed: nothing is written to disk, whatever paths it names."""
    files = {}
    try:
        with gzip.open(path) as unpacked:
            with tarfile.open(fileobj=unpacked, mode="r|") as archive:
                for member in archive:
                    name = member.name.rsplit("/", 1)[-1]
                    if name in spec.names and name not in files and member.isreg():
                        files[name] = archive.extractfile(member).read(spec.size(name) + 1)
            while unpacked.read(1 << 16):  # to the end, where gzip's checksum stands
                pass
    except UNREADABLE as error:
        raise ValueError(f"{path} is cut off or no .tar.gz archive ({error}); expected {spec.archive}") from error
    missing = [name for name in spec.names if name not in files]
    if missing:
        raise ValueError(f"{path} lacks {', '.join(missing)}; expected {spec.archive}")
    return files


def read_parquet(spec, folder):
    """The .bin files made anew from the copy at Hugging Face, whose images are PNG files in a column.

    It has the training images file by file, but not in the order of the files. The official checksums identify each
    block; if one doesn't match, all stay in the order in which they came.
    """
    *train, test = spec.parts
    blocks = np.split(
        parquet_records(spec, folder / PARQUET[0], sum(part.images for part in train)),
        np.cumsum([part.images for part in train])[:-1],
    )
    by_checksum = {checksum(kind, block): block for kind in ("sha1", "sha256") for block in blocks}
    if all(part.checksum in by_checksum for part in train):
        blocks = [by_checksum[part.checksum] for part in train]
    rows = [*blocks, parquet_records(spec, folder / PARQUET[1], test.images)]
    return {name: part.tobytes() for name, part in zip(spec.names, rows)}


def parquet_records(spec, path, images):
    """Records (images, bytes) from one parquet file."""
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise ValueError(
            f"{path.name} takes the extra parquet (pip install 'tinyvit[parquet]'); or get {spec.archive}"
        ) from None

    if not path.is_file():
        raise ValueError(f"{path} is missing; the parquet copy of {spec.title} has {' and '.join(PARQUET)}")
    try:
        with ParquetFile(path) as file:
            if file.metadata.num_rows != images:
                raise ValueError(f"it has {file.metadata.num_rows:,} rows, expected {images:,}")
            rows = file.read(["img", *spec.labels]).to_pylist()
        return np.stack([record(row["img"]["bytes"], [row[name] for name in spec.labels]) for row in rows])
    except Exception as error:  # damaged files make pyarrow and Pillow raise errors of every kind
        raise ValueError(f"{path} is damaged or not {spec.title}'s parquet copy: {short(repr(error), 300)}") from error


def record(content, labels):
    """One record: its labels, and the planes of the contents of a PNG file."""
    with open_image(BytesIO(content), ["PNG"]) as picture:
        if (picture.size, picture.mode) != ((32, 32), "RGB"):
            raise ValueError(f"expected 32×32 RGB pixels, got {picture.width}×{picture.height} {picture.mode}")
        planes = np.asarray(picture).transpose(2, 0, 1)
    return np.concatenate([np.array(labels, "uint8"), planes.reshape(-1)])


def checksum(algorithm, content):
    """A checksum with its algorithm, "sha256:…"."""
    return f"{algorithm}:{hashlib.new(algorithm, content, usedforsecurity=False).hexdigest()}"


def is_official(spec, rows):
    """Whether the records are those of the official files, byte by byte."""
    return all(checksum(part.checksum.split(":")[0], rows[part.name]) == part.checksum for part in spec.parts)
