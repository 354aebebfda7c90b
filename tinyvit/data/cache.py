"""The cache folder: data sets as .bin files, beside a list of where they came from and of their checksums.

A folder is filled under a hidden name and renamed when complete; its checksums are compared at each read. One process
fills it at a time.
"""

import os
import time
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tinyvit.data import cifar_files
from tinyvit.data.download import download
from tinyvit.files import entry, expanded, hidden_folder, read_manifest, sync, try_lock, write, write_manifest
from tinyvit.text import say

MANIFEST = "manifest.json"  # with "source": an address, or "file: PATH"


class Kept(NamedTuple):
    """A data set on the disk: its records by file, its folder, and its source (if known)."""

    rows: dict[str, np.ndarray]
    path: Path
    source: str | None


class DamagedError(ValueError):
    """Files that tinyvit wrote have changed; `downloaded` says whether they can be downloaded again."""

    def __init__(self, message, downloaded):
        super().__init__(message)
        self.downloaded = downloaded


def cache_folder():
    """TINYVIT_DATA, or else the platform's folder for caches; ValueError if that is a file."""
    named = os.environ.get("TINYVIT_DATA")
    if not named:
        import pooch
    path = expanded(named) if named else Path(pooch.os_cache("tinyvit"))
    if path.exists() and not path.is_dir():
        raise ValueError(f"the cache folder {path} is a file; set TINYVIT_DATA to a folder")
    return path


def obtain(spec, root):
    """The data set in the folder `root`; downloaded if it is missing, and again if its checksums are wrong."""
    try:
        found = kept(spec, root)
    except DamagedError:  # without the lock: another process may be writing it
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
        if (root / spec.folder).exists() and not (root / spec.folder / MANIFEST).exists():
            raise ValueError(
                f"{root / spec.folder} exists, and tinyvit didn't write it; remove it or choose another folder"
            )
        return put(spec, root, rows, f"file: {os.path.realpath(path)}")


def kept(spec, root):
    """The data set in `root`, in any form; None if there is none.

    Raises DamagedError if tinyvit put it there and it has changed since, ValueError if it can't be read.
    """
    folder = root / spec.folder
    if not (folder / MANIFEST).exists():
        found = cifar_files.locate(spec, root)
        return found and Kept(cifar_files.read(spec, root), found[1], None)
    try:
        manifest = read_manifest(folder / MANIFEST)
        source, entries = str(manifest["source"]), manifest["files"]
    except (ValueError, KeyError):
        source, entries = "", {}  # which matches no file
    contents = {name: cifar_files.read_bounded(folder / name, spec.size(name)) for name in spec.names}
    changed = [name for name, content in contents.items() if entry(content) != entries.get(name)]
    if changed:
        raise DamagedError(
            f"{folder} is damaged ({', '.join(changed)} not as tinyvit wrote it)"
            + ("" if is_address(source) else f"; remove it, or repeat tinyvit data {spec.name} --from FILE"),
            is_address(source),
        )
    return Kept(cifar_files.checked(spec, contents), folder, source)


def is_address(source):
    return source.startswith(("https://", "http://"))


def downloaded(spec, root):
    """The data set from the first source that works; the lock is held."""
    try:
        with hidden_folder(root) as folder:
            rows, source = download(spec.sources, folder, lambda folder: cifar_files.read(spec, folder))
    except ValueError as error:
        raise ValueError(
            f"{spec.title} could not be downloaded ({error}); if you have a copy, name it with --data-dir, "
            f"or register it once: tinyvit data {spec.name} --from FILE"
        ) from error
    return put(spec, root, rows, source.files[0].address)


def put(spec, root, rows, source):
    """Write the records and their manifest to a folder that appears when it is complete; the lock is held."""
    folder = root / spec.folder
    with hidden_folder(root) as hidden:
        new = hidden / "new"
        new.mkdir()
        for name in spec.names:
            write(new / name, rows[name])
        write_manifest(new / MANIFEST, {name: entry(rows[name]) for name in spec.names}, {"source": source})
        if folder.exists():
            folder.rename(hidden / "old")
        new.rename(folder)
    sync(root)
    return Kept(rows, folder, source)


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
