"""CIFAR-10 in its official binary layout, from a folder or from the archive as it was downloaded.

Each file is a row of records of 3,073 bytes: a label, then the red, the green and the blue plane, row by row.
Krizhevsky 2009, "Learning multiple layers of features from tiny images".
"""

import gzip
import tarfile
import zlib
from pathlib import Path

import numpy as np

from tinyvit.data.dataset import Dataset, Split

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
FOLDER, ARCHIVE = "cifar-10-batches-bin", "cifar-10-binary.tar.gz"
TRAIN, TEST = [f"data_batch_{i}.bin" for i in range(1, 6)], "test_batch.bin"
RECORD = 1 + 3 * 32 * 32
FILE_SIZE = 10_000 * RECORD
# Of the training images, channel by channel, as a fraction of 255.
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def cifar10(data_dir):
    """CIFAR-10, 50,000 and 10,000 images of 32×32 pixels.

    data_dir   the folder of the .bin files, a folder that holds that folder or the archive, or the archive itself

    Raises ValueError if the files are missing, cut off, or not this data set. Nothing is unpickled, and nothing is
    extracted from the archive to disk.
    """
    if data_dir is None:
        raise ValueError(
            f"cifar10 needs --data-dir: the folder of {TEST} and its like, or {ARCHIVE} "
            "(https://www.cs.toronto.edu/~kriz/cifar.html, the binary version)"
        )
    files = read_files(Path(data_dir).expanduser())
    train = [records(name, files[name]) for name in TRAIN]
    test = records(TEST, files[TEST])
    return Split(as_dataset(np.concatenate(train)), as_dataset(test))


def as_dataset(rows):
    """Rows of 3,073 bytes as a Dataset."""
    images = np.ascontiguousarray(rows[:, 1:]).reshape(-1, 3, 32, 32)
    return Dataset(images, rows[:, 0].astype("int64"), CLASSES, MEAN, STD)


def records(name, content):
    """The bytes of a file as rows (10,000, 3,073), checked."""
    if len(content) != FILE_SIZE:
        raise ValueError(
            f"{name} has {len(content):,} bytes, expected {FILE_SIZE:,} (10,000 records of {RECORD:,} bytes): "
            "it is cut off or not CIFAR-10"
        )
    rows = np.frombuffer(content, np.uint8).reshape(-1, RECORD)
    if rows[:, 0].max() > 9:
        wrong = int(np.flatnonzero(rows[:, 0] > 9)[0])
        raise ValueError(f"{name} has label {rows[wrong, 0]} at image {wrong}, expected 0 to 9: it is not CIFAR-10")
    return rows


def read_files(path):
    """The contents of the six .bin files, by name."""
    if path.is_file():
        return read_archive(path)
    if not path.is_dir():
        what = "is neither a file nor a folder" if path.exists() else "doesn't exist"
        raise ValueError(f"{path} {what}; expected a folder with CIFAR-10's .bin files, or {ARCHIVE}")
    for folder in (path, path / FOLDER):
        if (folder / TEST).exists() or (folder / TRAIN[0]).exists():
            return {name: read_bounded(folder / name) for name in [*TRAIN, TEST]}
    if (path / ARCHIVE).exists():
        return read_archive(path / ARCHIVE)
    if any((folder / "data_batch_1").exists() for folder in (path, path / "cifar-10-batches-py")):
        raise ValueError(
            f"{path} holds the Python version of CIFAR-10, whose pickles can run code when they are read; "
            f"get the binary version ({ARCHIVE})"
        )
    raise ValueError(f"{path} holds no CIFAR-10; expected {TEST} and its like, the folder {FOLDER}, or {ARCHIVE}")


def read_bounded(path):
    """A file's bytes, not more than one too many: what is larger is not CIFAR-10."""
    if not path.is_file():
        raise ValueError(f"{path} is missing; CIFAR-10's binary version has {', '.join([*TRAIN, TEST])}")
    with path.open("rb") as file:
        return file.read(FILE_SIZE + 1)


def read_archive(path):
    """The six files out of the archive, streamed: nothing is written to disk, whatever paths it names."""
    files = {}
    try:
        with gzip.open(path) as stream:
            with tarfile.open(fileobj=stream, mode="r|") as archive:
                for member in archive:
                    name = member.name.rsplit("/", 1)[-1]
                    if member.isreg() and name in (*TRAIN, TEST) and name not in files:
                        files[name] = archive.extractfile(member).read(FILE_SIZE + 1)
            while stream.read(1 << 20):  # to the end, where gzip's checksum stands
                pass
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is cut off or no .tar.gz archive ({error}); expected {ARCHIVE}") from error
    missing = [name for name in [*TRAIN, TEST] if name not in files]
    if missing:
        raise ValueError(f"{path} lacks {', '.join(missing)}; expected {ARCHIVE}")
    return files
