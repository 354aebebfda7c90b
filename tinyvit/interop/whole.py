"""Files and folders that are whole or absent, whenever the process dies."""

import os
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

from tinyvit.data.locking import try_lock
from tinyvit.data.paths import expanded

HIDDEN = ".tinyvit-"  # what names begin with while something is being made: NAME.tmp, and NAME.lock of whoever makes it


def free_place(path):
    """`path` as a Path, with ~ as the home; ValueError if there is anything already, an empty folder too, or if
    nothing can be made there."""
    path = expanded(path)
    check_free(path)
    if path.name == "..":
        raise ValueError(f"{path} names no new file or folder; choose another place")
    above = next((folder for folder in path.parents if folder.exists()), path.parent)
    if not above.is_dir():
        raise ValueError(f"nothing can be made at {path}: {above} is no folder; choose another place")
    return path


def check_free(path):
    """Raise ValueError if there is anything at `path`."""
    if path.exists() or path.is_symlink():
        raise ValueError(f"{path} is there already; choose another place")


@contextmanager
def made_whole(path):
    """A path in a hidden folder beside `path`, at which a file or a folder is to be made; at the end it is moved to
    `path`.

    What is made beside it, under names that begin as its own does, comes along. Raises ValueError if there is something
    at one of these places already, and OSError, naming `path`, if it can't be written. Then, and if anything else goes
    wrong, nothing is left of what was made, nor of the folders above it; what a process leaves that was killed is
    taken away when the next one makes something in the same folder.
    """
    path = free_place(path)
    try:
        with folders_above(path), hidden_folder(path.parent) as folder:
            yield folder / path.name
            put_in_place(folder, path)
    except OSError as error:
        what = error.strerror or error  # its own path would be the hidden one
        raise OSError(f"{path} can't be written: {what}; nothing of it is left, so make room or choose another place") \
            from error  # fmt: skip


@contextmanager
def folders_above(path):
    """Inside this the folder of `path` is there; where something goes wrong, those that weren't are gone again."""
    missing = [folder for folder in path.parents if not folder.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for folder in missing:
            with suppress(OSError):  # somebody else uses it by now
                folder.rmdir()
        raise


@contextmanager
def hidden_folder(parent):
    """A new, hidden folder in `parent`, which is removed at the end; so are those of processes that were killed."""
    remove_left_over(parent)
    with NamedTemporaryFile(prefix=HIDDEN, suffix=".lock", dir=parent) as lock:
        with suppress(OSError):  # of a file system without locks: there nobody removes what others left
            try_lock(lock)
        folder = Path(lock.name).with_suffix(".tmp")
        try:
            folder.mkdir()
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def remove_left_over(parent):
    """Remove the hidden folders in `parent` whose makers are dead: the system has taken back their locks. A lock is
    older than its folder, so that whoever is alive has locked it."""
    for lock in parent.glob(f"{HIDDEN}*.lock"):
        folder = lock.with_suffix(".tmp")
        with suppress(OSError), lock.open("rb+") as file:  # of other users, or without locks
            if folder.is_dir() and try_lock(file):
                shutil.rmtree(folder, ignore_errors=True)
                lock.unlink()


def put_in_place(folder, path):
    """Move all that is in a folder to beside `path`, the one with its name last."""
    made = sorted(folder.iterdir(), key=lambda entry: entry.name == path.name)
    for entry in made:
        on_disk(entry)
    for entry in made:
        check_free(path.with_name(entry.name))
    moved = []
    try:
        for entry in made:
            target = path.with_name(entry.name)
            try:
                entry.rename(target)
            except OSError:
                check_free(target)  # somebody was faster by a moment
                raise
            moved.append(target)
    except BaseException:
        for target in moved:
            shutil.rmtree(target) if target.is_dir() else target.unlink()
        raise
    sync(path.parent)


def on_disk(path):
    """Have a file, or a folder with all that is in it, on the disk."""
    for entry in [path, *path.rglob("*")] if path.is_dir() else [path]:
        sync(entry)


def sync(path):
    if os.name == "posix" or path.is_file():
        descriptor = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
