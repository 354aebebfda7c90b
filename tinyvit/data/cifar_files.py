"""The files of CIFAR-10 and CIFAR-100 as rows of records, from a folder, the archive, or the parquet copy.

No more is read of a file than the data set has, whatever the file claims: that bounds the memory.
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

# What gzip and tarfile raise for damaged bytes; an OSError of the disk is not among them.
UNREADABLE = (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, ValueError, ArithmeticError, RecursionError)

LARGEST_PNG = 1 << 16  # bytes of an image's file; 32×32 pixels of noise take 3,200
BESIDES = 1 << 20  # bytes of an unpacked archive that may be other than images: headers, names, a readme


def read(spec, path):
    """The records (n, bytes) of every .bin file by name, checked; ValueError if they aren't all there and right."""
    found = locate(spec, path)
    if found is not None:
        reader, where = found
        return checked(spec, reader(spec, where))
    if not path.is_dir():
        what = "is neither a file nor a folder" if path.exists() else "doesn't exist"
        raise ValueError(f"{path} {what}; expected a folder with {spec.title}'s .bin files, or {spec.archive}")
    if any((folder / name).exists() for folder in (path, python_version(spec, path)) for name in PICKLES):
        raise ValueError(
            f"{path} holds the Python version of {spec.title}, whose pickles can run code when they are read; "
            f"get the binary version ({spec.archive})"
        )
    raise ValueError(
        f"{path} holds no {spec.title}; expected {spec.names[-1]} and its like, the folder {spec.folder}, "
        f"or {spec.archive}"
    )


def python_version(spec, path):
    return path / spec.folder.replace("batches-bin", "batches-py").replace("binary", "python")


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


def checked(spec, contents):
    """The bytes of every file as rows of records."""
    return {name: records(spec, name, contents[name]) for name in spec.names}


def records(spec, name, content):
    """The bytes of a file as rows (n, bytes of a record), checked."""
    images = spec.size(name) // spec.record
    if len(content) != spec.size(name):
        raise ValueError(
            f"{name} has {len(content):,} bytes, expected {spec.size(name):,} ({images:,} records of "
            f"{spec.record:,} bytes): it is cut off or not {spec.title}"
        )
    rows = np.frombuffer(content, np.uint8).reshape(images, spec.record)
    for byte, label in enumerate(spec.labels):
        if rows[:, byte].max() >= label.values:
            wrong = int(np.flatnonzero(rows[:, byte] >= label.values)[0])
            raise ValueError(
                f"{name} has {label.column.replace('_', ' ')} {rows[wrong, byte]} at image {wrong}, "
                f"expected 0 to {label.values - 1}: it is not {spec.title}"
            )
    return rows


# -- a folder ---------------------------------------------------------------------------------------------------------


def read_folder(spec, folder):
    """The contents of the .bin files by name."""
    for name in spec.names:
        if not (folder / name).is_file():
            raise ValueError(f"{folder / name} is missing; {spec.title}'s binary version has {', '.join(spec.names)}")
    return {name: read_bounded(folder / name, spec.size(name)) for name in spec.names}


def read_bounded(path, size):
    """The first `size` + 1 bytes of a file; none of a missing one."""
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(size + 1)


# -- the archive ------------------------------------------------------------------------------------------------------


class Allowance:
    """A stream that limits how many bytes are read: an archive of a few kilobytes can unpack to terabytes."""

    def __init__(self, stream, left):
        self.stream, self.left = stream, left

    def read(self, size):
        content = self.stream.read(size)
        self.left -= max(len(content), 512)  # also for an empty read, as tarfile seeks
        if self.left < 0:
            raise tarfile.ReadError("it unpacks to more than the data set has")
        return content


def read_archive(spec, path):
    """The .bin files out of the archive, streamed: nothing is written to disk, whatever paths it names."""
    files = {}
    try:
        with gzip.open(path) as unpacked:
            stream = Allowance(unpacked, BESIDES)
            with tarfile.open(fileobj=stream, mode="r|") as archive:
                while (member := archive.next()) is not None:
                    archive.members.clear()  # or it would grow with the archive
                    name = member.name.rsplit("/", 1)[-1]
                    if name in spec.names and name not in files and member.isreg() and not member.issparse():
                        stream.left += spec.size(name) + 1
                        files[name] = archive.extractfile(member).read(spec.size(name) + 1)
            while stream.read(1 << 16):  # to the end, where gzip's checksum stands
                pass
    except UNREADABLE as error:
        raise ValueError(f"{path} is cut off or no .tar.gz archive ({error}); expected {spec.archive}") from error
    missing = [name for name in spec.names if name not in files]
    if missing:
        raise ValueError(f"{path} lacks {', '.join(missing)}; expected {spec.archive}")
    return files


# -- the parquet copy -------------------------------------------------------------------------------------------------


def read_parquet(spec, folder):
    """The .bin files made anew from the copy at Hugging Face, whose images are PNG files in a column.

    It has the training images file by file, but not in the order of the files. The official checksums identify each
    block; if one doesn't match, all stay in the order in which they came.
    """
    train = spec.parts[:-1]
    blocks = np.split(
        parquet_records(spec, folder / PARQUET[0], sum(part.images for part in train)),
        np.cumsum([part.images for part in train])[:-1],
    )
    by_checksum = {checksum("sha1", block): block for block in blocks}
    by_checksum |= {checksum("sha256", block): block for block in blocks}
    if all(part.checksum in by_checksum for part in train):
        blocks = [by_checksum[part.checksum] for part in train]
    test = parquet_records(spec, folder / PARQUET[1], spec.parts[-1].images)
    return {name: rows.tobytes() for name, rows in zip(spec.names, [*blocks, test])}


def parquet_records(spec, path, images):
    """Records (images, bytes) from one parquet file."""
    try:
        import pyarrow
        from pyarrow.parquet import ParquetFile, read_metadata
    except ImportError:
        raise ValueError(
            f"{path.name} takes the extra parquet (pip install 'tinyvit[parquet]'); or get {spec.archive}"
        ) from None

    if not path.is_file():
        raise ValueError(f"{path} is missing; the parquet copy of {spec.title} has {' and '.join(PARQUET)}")
    rows = np.empty((images, spec.record), "uint8")
    columns = ["img", *(label.column for label in spec.labels)]
    try:
        metadata = read_metadata(path)
        leaves = [metadata.schema.column(i).path for i in range(metadata.num_columns)]
        # As a dictionary, a long text that every row repeats stays one text.
        with ParquetFile(path, metadata=metadata, read_dictionary=leaves) as file:
            for column in columns:
                if column not in file.schema_arrow.names:
                    raise ValueError(f"{path} has no column {column}: it is not {spec.title}")
            if metadata.num_rows != images:
                raise ValueError(f"{path} has {metadata.num_rows:,} rows, expected {images:,}: it is not {spec.title}")
            check_unpacked(spec, path, metadata, columns)
            row = 0
            for batch in file.iter_batches(batch_size=1000, columns=columns):
                for image, *labels in zip(*(batch.column(name) for name in columns)):
                    rows[row] = record(spec, f"{path}, image {row}", image, [label.as_py() for label in labels])
                    row += 1
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the disk, not of the file
            raise
        raise ValueError(f"{path} is damaged or not a parquet file: {' '.join(str(error).split())}") from error
    if row != images:
        raise ValueError(f"{path} has {row:,} images, expected {images:,}: it is damaged")
    return rows


def check_unpacked(spec, path, metadata, columns):
    """Raise ValueError for columns that unpack to more than the data set has.

    The metadata of a single column are not asked for: damaged ones end the process in pyarrow 26.
    """
    for column in map(metadata.schema.column, range(metadata.num_columns)):
        if column.path.partition(".")[0] in columns and column.max_repetition_level:
            raise ValueError(f"{path} has lists in its column {short(column.path)}: it is not {spec.title}")
    most = 2 * metadata.num_rows * spec.record + BESIDES  # bytes; a PNG of noise has a little more than its pixels
    unpacked = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    if unpacked > most:
        raise ValueError(f"{path} unpacks to {unpacked:,} bytes, expected at most {most:,}: it is not {spec.title}")


def record(spec, where, image, labels):
    """One record: its labels and the planes of a PNG file (a scalar of Arrow), whose size is checked first."""
    from PIL import Image

    for value, label in zip(labels, spec.labels):
        if not (isinstance(value, int) and 0 <= value < label.values):
            raise ValueError(f"{where} has {label.column} {short(value)}, expected 0 to {label.values - 1}")
    try:
        content = image["bytes"].as_py()
        if len(content) > LARGEST_PNG:
            raise ValueError(f"it has {len(content):,} bytes")
        with open_image(BytesIO(content), ["PNG"]) as picture:
            if (picture.size, picture.mode) != ((32, 32), "RGB"):
                raise ValueError(f"it is {picture.size[0]}×{picture.size[1]} and {picture.mode}")
            pixels = np.asarray(picture)  # (32, 32, 3)
    except (OSError, SyntaxError, ValueError, TypeError, KeyError, EOFError, Image.DecompressionBombError) as error:
        raise ValueError(f"{where} is no PNG of 32×32 RGB pixels ({error})") from error
    return np.concatenate([np.array(labels, "uint8"), pixels.transpose(2, 0, 1).reshape(-1)])


def checksum(algorithm, content):
    """A checksum as pooch writes it, "sha256:…"."""
    return f"{algorithm}:{hashlib.new(algorithm, content, usedforsecurity=False).hexdigest()}"


def is_official(spec, rows):
    """Whether the records are those of the official files, byte by byte."""
    return all(checksum(part.checksum.split(":")[0], rows[part.name]) == part.checksum for part in spec.parts)
