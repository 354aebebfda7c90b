"""The cache folder: data sets as .bin files, beside a list of where they came from and of their checksums.

A folder is filled under another name and renamed when it is whole, so that none is ever half there; its checksums are
compared each time that it is read. One process fills it at a time.
"""

import hashlib
import json
import os
import shutil
import time
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tinyvit.data import cifar_files
from tinyvit.data.download import download, say
from tinyvit.data.locking import try_lock
from tinyvit.data.paths import expanded

MANIFEST = "checksums.json"  # {"source": an address, or "file: PATH", "sha256": {file name: checksum}}


class Kept(NamedTuple):
    """A data set on the disk: its records by file, where it lies, and where it came from (if that is known)."""

    rows: dict[str, np.ndarray]
    path: Path
    source: str | None


class DamagedError(ValueError):
    """Files that tinyvit wrote are not as it wrote them; `downloaded` says whether they can be had again."""

    def __init__(self, message, downloaded):
        super().__init__(message)
        self.downloaded = downloaded


def cache_folder():
    """TINYVIT_DATA, or else the platform's folder for caches; ValueError if that is a file."""
    import pooch

    named = os.environ.get("TINYVIT_DATA")
    path = expanded(named) if named else Path(pooch.os_cache("tinyvit"))
    if path.exists() and not path.is_dir():
        raise ValueError(f"the cache folder {path} is a file; set TINYVIT_DATA to a folder")
    return path


def obtain(spec, root):
    """The data set that lies in the folder `root`; downloaded if it doesn't, and again if its checksums are wrong."""
    try:
        found = kept(spec, root)
    except DamagedError:  # until the lock is held, another process may be at it
        found = None
    if found is None:
        with filling(spec, root):
            try:
                found = kept(spec, root)
            except DamagedError as error:
                if not error.downloaded:
                    raise
                say(f"{error}; downloading it again")
            found = found or downloaded(spec, root)
    return found


def take_over(spec, path, root):
    """Copy the data set from a file or folder that one has into `root`, once all of it has been read and checked."""
    rows = cifar_files.read(spec, path)
    with filling(spec, root):
        if (root / spec.folder).exists() and read_manifest(root / spec.folder) is None:
            raise ValueError(
                f"{root / spec.folder} is there already and not of tinyvit's making; remove it or choose another folder"
            )
        return put(spec, root, rows, f"file: {path.resolve()}")


def kept(spec, root):
    """The data set that lies in `root`, in any form; None if there is none.

    Raises DamagedError if tinyvit put it there and it has changed since, ValueError if it can't be read.
    """
    folder = root / spec.folder
    manifest = read_manifest(folder)
    if manifest is None:
        found = cifar_files.locate(spec, root)
        return found and Kept(cifar_files.read(spec, root), found[1], None)
    source, checksums = manifest
    contents = {name: cifar_files.read_bounded(folder / name, spec.size(name)) for name in spec.names}
    changed = [name for name, content in contents.items() if sha256(content) != checksums.get(name)]
    if changed:
        raise DamagedError(
            f"{folder} is damaged ({', '.join(changed)} not as tinyvit wrote it)"
            + ("" if is_address(source) else f"; remove it, or repeat tinyvit data {spec.name} --from FILE"),
            is_address(source),
        )
    return Kept(cifar_files.checked(spec, contents), folder, source)


def read_manifest(folder):
    """Source and checksums of a folder; None if it isn't tinyvit's."""
    try:
        content = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return str(content["source"]), dict(content["sha256"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError):
        return "", {}  # which no file agrees with


def is_address(source):
    return source.startswith(("https://", "http://"))


def downloaded(spec, root):
    """The data set from the first source that works; the lock is held."""
    folder = root / f".{spec.folder}.download"
    shutil.rmtree(folder, ignore_errors=True)  # of a process that was killed
    folder.mkdir()
    try:
        rows, source = download(spec.sources, folder, lambda folder: cifar_files.read(spec, folder))
    except ValueError as error:
        raise ValueError(
            f"{spec.title} could not be downloaded ({error}); if you have a copy, name it with --data-dir, "
            f"or once and for all: tinyvit data {spec.name} --from FILE"
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return put(spec, root, rows, source.files[0].address)


def put(spec, root, rows, source):
    """Write the records and their checksums to a folder that appears when it is whole; the lock is held."""
    folder, new, old = root / spec.folder, root / f".{spec.folder}.new", root / f".{spec.folder}.old"
    for left_over in (new, old):
        shutil.rmtree(left_over, ignore_errors=True)
    new.mkdir()
    try:
        for name in spec.names:
            write(new / name, rows[name])
        checksums = {name: sha256(rows[name]) for name in spec.names}
        write(new / MANIFEST, json.dumps({"source": source, "sha256": checksums}, indent=1).encode())
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
    finally:
        for left_over in (new, old):
            shutil.rmtree(left_over, ignore_errors=True)
    return Kept(rows, folder, source)


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def write(path, content):
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def filling(spec, root):
    """Hold the lock of a data set in `root`; waits, and says so, while another process has it."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        file = (root / f".{spec.folder}.lock").open("a")
    except OSError as error:
        raise ValueError(
            f"{root} can't be written to ({error.strerror}); set TINYVIT_DATA or --data-dir to a folder that can"
        ) from error
    with file:
        if not try_lock(file):
            say(f"waiting for another process that puts {spec.title} into {root}")
            while not try_lock(file):
                time.sleep(0.1)
        yield
