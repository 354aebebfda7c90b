"""CIFAR-10 and CIFAR-100 with a handful of random images, in each of their file formats."""

import gzip
import hashlib
import tarfile
from dataclasses import replace
from io import BytesIO

import numpy as np

from tinyvit.data.cifar import Part
from tinyvit.data.cifar_files import PARQUET


def small(spec, seed=0, images=3):
    """A data set with `images` images per file whose checksums count as official, and the contents of its files."""
    generator = np.random.default_rng(seed)
    contents = {}
    for name in spec.names:
        rows = generator.integers(0, 256, (images, spec.record), dtype="uint8")
        rows[:, len(spec.labels) - 1] %= len(spec.classes)
        contents[name] = rows.tobytes()
    parts = tuple(Part(name, images, f"sha1:{hashlib.sha1(contents[name]).hexdigest()}") for name in spec.names)
    return replace(spec, parts=parts, sources=()), contents


def write_folder(spec, contents, path):
    path.mkdir(parents=True, exist_ok=True)
    for name in spec.names:
        (path / name).write_bytes(contents[name])
    return path


def archive(spec, contents):
    """The bytes of a .tar.gz of the files, identical in each call."""
    stream = BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as file:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"{spec.folder}/{name}")
            member.size = len(content)
            file.addfile(member, BytesIO(content))
    return gzip.compress(stream.getvalue(), mtime=0)


def png(record, labels=1, side=32):
    """The pixels of a record as a PNG file."""
    from PIL import Image

    stream = BytesIO()
    Image.fromarray(np.ascontiguousarray(record[labels:].reshape(3, side, side).transpose(1, 2, 0))).save(stream, "PNG")
    return stream.getvalue()


def write_parquet(spec, contents, folder, order=None):
    """The two parquet files; the training images file by file, the files in this order."""
    import pyarrow
    from pyarrow import parquet

    folder.mkdir(exist_ok=True)
    *train, test = spec.names
    for target, names in zip(PARQUET, (order or train, [test])):
        rows = np.frombuffer(b"".join(contents[name] for name in names), "uint8").reshape(-1, spec.record)
        columns = {"img": [{"bytes": png(row, len(spec.labels)), "path": None} for row in rows]}
        columns |= {label: rows[:, byte].astype("int64") for byte, label in enumerate(spec.labels)}
        parquet.write_table(pyarrow.table(columns), folder / target)
    return folder


def assert_same_images(split, spec, contents):
    """The data set has exactly the images and labels of the files, in their order."""
    parts = [np.frombuffer(contents[name], "uint8").reshape(-1, spec.record) for name in spec.names]
    for dataset, rows in ((split.train, np.concatenate(parts[:-1])), (split.test, parts[-1])):
        labels = len(spec.labels)
        np.testing.assert_array_equal(dataset.images.reshape(len(rows), -1), rows[:, labels:])
        np.testing.assert_array_equal(dataset.labels, rows[:, labels - 1])
