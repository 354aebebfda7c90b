"""The cache folder: data sets as .bin files, beside a list of where they came from and of their checksums.

A folder is filled under a hidden name and renamed when complete; its checksums are compared at each read. One process
fills it at a time. pooch downloads, and keeps nothing with another checksum than the published one.
"""

import os
import shutil
import sys
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tinyvit.data import cifar_files
from tinyvit.files import create, expand_path, hidden_folder, hold_lock, tidy, verified_manifest, write_with_manifest
from tinyvit.text import say, shorten

MANIFEST = "manifest.json"  # with "source": an address, or "file: PATH"
MAX_RETRIES = 2             # at a file whose download breaks off
TIMEOUT_SECONDS = 30        # without a single byte


class CacheEntry(NamedTuple):
    """A data set on the disk: its records by file, its folder, and its source (if known)."""

    rows: dict[str, np.ndarray]
    path: Path
    source: str | None


def cache_folder():
    """TINYVIT_DATA, or else the platform's folder for caches."""
    import pooch

    return expand_path(os.environ.get("TINYVIT_DATA") or pooch.os_cache("tinyvit"))


def obtain(spec, root):
    """The data set in the folder `root`, downloaded if it is missing there."""
    found = find_cached(spec, root)
    if found is None:
        with filling(root):
            found = find_cached(spec, root) or download(spec, root)
    return found


def take_over(spec, path, root):
    """Copy the data set from a local file or folder into `root`, after all of it was read and checked."""
    rows = cifar_files.read(spec, path)
    with filling(root):
        return put(spec, root, rows, f"file: {os.path.realpath(path)}")


def find_cached(spec, root):
    """The data set in `root`, in any form; None if there is none.

    Raises ValueError if it can't be read, or if tinyvit put it there and it has changed since.
    """
    folder = root / spec.folder
    manifest = folder / MANIFEST
    if not manifest.exists():
        found = cifar_files.locate(spec, root)
        return found and CacheEntry(cifar_files.read(spec, root), found[1], None)
    try:
        source = verified_manifest(manifest)["source"]
        return CacheEntry(cifar_files.read(spec, folder), folder, source)
    except ValueError as error:
        raise ValueError(f"{error}; remove {folder}, or repeat tinyvit data {spec.name} --from FILE") from error


def put(spec, root, rows, source):
    """Write the records and their manifest to a folder that appears when it is complete; the lock is held."""
    folder = root / spec.folder
    if folder.exists() and not (folder / MANIFEST).exists():
        raise ValueError(f"{folder} exists, and tinyvit didn't write it; remove it or choose another folder")
    shutil.rmtree(folder, ignore_errors=True)
    with create(folder) as new:
        new.mkdir()
        write_with_manifest(new / MANIFEST, {name: rows[name] for name in spec.names}, {"source": source})
    return CacheEntry(rows, folder, source)


@contextmanager
def filling(root):
    """Hold the lock of `root`; it waits, and says so, while another process has it."""
    root.mkdir(parents=True, exist_ok=True)
    waiting = f"waiting for another process that puts data into {root}"
    with hold_lock(root / ".tinyvit.lock", lambda: say(waiting)):
        tidy(root)
        yield


# -- downloads --------------------------------------------------------------------------------------------------------


def download(spec, root):
    """The data set from the first source that works; the lock is held.

    The parquet copy is only asked for where pyarrow is installed, which the extra `parquet` does. Raises ValueError
    with the reason of every source if none works.
    """
    reasons = []
    for source in spec.sources:
        first = next(iter(source))
        if first.endswith(".parquet") and find_spec("pyarrow") is None:
            continue
        with hidden_folder(root) as folder:
            try:
                for address, checksum in source.items():
                    fetch(address, checksum, folder)
                rows = cifar_files.read(spec, Path(folder))
            except (OSError, ValueError) as error:  # an OSError where there is no connection, or it broke off
                reasons.append(f"{first.split('/')[2]}: {shorten(error, 250)}")
                continue
        return put(spec, root, rows, first)
    raise ValueError(
        f"{spec.title} could not be downloaded ({'; '.join(reasons)}); if you have a copy, name it with --data-dir, "
        f"or register it once: tinyvit data {spec.name} --from FILE"
    )


def fetch(address, checksum, folder):
    """Download a file by pooch, which raises OSError if that fails, and ValueError for another SHA256."""
    import pooch

    import tinyvit.progress  # noqa: F401 (it gives tqdm, which pooch draws with, a lock that starts no process)

    pooch.get_logger().setLevel("WARNING")
    name = address.rsplit("/", 1)[-1]
    say(f"downloading {name} from {address}")
    headers = {"Accept-Encoding": "identity"}  # or some servers send a .tar.gz unpacked, as .tar
    downloader = pooch.HTTPDownloader(sys.stderr.isatty(), chunk_size=1 << 16, timeout=TIMEOUT_SECONDS, headers=headers)
    registry = {name: f"sha256:{checksum}"}
    files = pooch.create(folder, "", registry=registry, urls={name: address}, retry_if_failed=MAX_RETRIES)
    files.fetch(name, downloader=downloader)
