"""Atomic writes of files and folders, locks, and manifests of SHA256.

Everything is first written into a hidden folder of its own beside its place, and renamed when it is complete and on the
disk: whenever the process dies, a file is there as a whole or not at all.
"""

import hashlib
import json
import os
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

HIDDEN_PREFIX = ".tinyvit-"  # how the names of hidden folders begin
MAX_TEXT_BYTES = 1 << 26  # bytes of a text that is read; a manifest of a hundred thousand evaluations fits
ADVICE = "make room or choose another place"


def expand_path(path):
    """`path` as a Path, with ~ and ~user replaced by their home folders; a user that the system doesn't know stays as
    written, as in a shell (Path.expanduser raises RuntimeError)."""
    if path == "":
        raise ValueError("expected a path, got an empty one")
    return Path(os.path.expanduser(path))


def check_folder(path):
    """Raise ValueError for a path at which there is no folder, and none can be made."""
    if os.path.lexists(path) and not path.is_dir():
        raise ValueError(f"{path} is a file or a broken link; choose a folder")


@contextmanager
def hold_lock(path, busy=lambda: None):
    """Hold the lock of the file `path`, which is made if it is missing; yields what identifies that file.

    busy   called if another process has the lock; it is waited for unless this raises an error

    It is a lock of the system (flock), which releases it when the process ends, however it ends.
    """
    from filelock import FileLock, Timeout

    Path(path).touch()  # raises what filelock would wait for, and doesn't make a folder that was removed, as it would
    lock = FileLock(path, thread_local=False)
    try:
        held = lock.acquire(timeout=0)
    except Timeout:
        busy()
        held = lock.acquire()
    with held:
        yield identity(path)


def identity(path):
    """A file's device and number, which no other file has while it is open; None if there is no file."""
    with suppress(OSError):
        found = os.stat(path)
        return found.st_dev, found.st_ino


# -- writing ----------------------------------------------------------------------------------------------------------


def write(path, content, advice=ADVICE):
    """Put bytes into a file in one go, as `replace_file` does."""
    with replace_file(path, advice) as file:
        file.write(content)


@contextmanager
def replace_file(path, advice=ADVICE):
    """A file to write to, which is put at `path` when the block ends without an error.

    advice   what to do if it can't be written

    Raises ValueError if the folder was removed, OSError for a full disk or a missing permission. A file that was there
    before is then unchanged.
    """
    with move_into_place(path, advice) as place, place.open("wb") as file:
        yield file


@contextmanager
def create(path):
    """A path in a hidden folder, at which a file or a folder is to be made; at the end it is moved to `path`.

    What is made beside it, under names that begin as its own does, comes along. Raises ValueError if there is something
    at one of these places already, and OSError, naming `path`, if it can't be written. Then, and if anything else goes
    wrong, nothing remains of what was made, except empty folders above it.
    """
    path = free_place(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with move_into_place(path, check=free_place) as place:
        yield place


@contextmanager
def move_into_place(path, advice=ADVICE, check=lambda path: None):
    """A path in a hidden folder. What is there at the end is put at `path`, and what is beside it beside `path`, unless
    `check` raises an error for one of these places."""
    try:
        with hidden_folder(path.parent) as folder:
            folder = Path(folder)
            yield folder / path.name
            for file in folder.rglob("*"):
                sync(file)
            made = sorted(folder.iterdir(), key=lambda entry: entry.name == path.name)  # the one of this name last
            for entry in made:
                check(path.with_name(entry.name))
            for entry in made:
                os.replace(entry, path.with_name(entry.name))
        sync(path.parent)  # the new name has to reach the disk, too
    except OSError as error:
        if not path.parent.exists():
            raise ValueError(f"{path.parent} was removed while it was in use; {path.name} can't be saved") from error
        # The error's own path would be the hidden one.
        raise OSError(f"{path} can't be written: {error.strerror or error}; nothing of it is left: {advice}") from error


def free_place(path):
    """`path` as a Path, with ~ expanded; ValueError if there is anything already, even an empty folder."""
    path = expand_path(path)
    if os.path.lexists(path):
        raise ValueError(f"{path} is there already; choose another place")
    return path


def hidden_folder(parent):
    """A context with the name of a new hidden folder in `parent`, which is removed at the end."""
    return TemporaryDirectory(prefix=HIDDEN_PREFIX, dir=parent, ignore_cleanup_errors=True)


def tidy(parent):
    """Remove the hidden folders that killed processes left in `parent`, whose lock this process holds."""
    for folder in parent.glob(f"{HIDDEN_PREFIX}*"):
        shutil.rmtree(folder, ignore_errors=True)


def sync(path):
    """Flush a file, or the entries of a folder, to the disk; does nothing on a system that isn't POSIX."""
    if os.name == "posix":
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read_text(path):
    """The text of a file; ValueError, before it is read, for one of more than `MAX_TEXT_BYTES`, a pipe or a device."""
    if not path.is_file():
        raise ValueError(f"{path} is not a file")
    if (size := path.stat().st_size) > MAX_TEXT_BYTES:
        raise ValueError(f"{path} has {size:,} bytes; at most {MAX_TEXT_BYTES:,} are read; it is damaged or wrong")
    return path.read_text(encoding="utf-8", errors="replace")


# -- manifests --------------------------------------------------------------------------------------------------------


def write_with_manifest(manifest, files, about=None, write=write):
    """Write `files` by name, bytes or the path of what is there already, beside the JSON file `manifest`.

    That is written last: an `entry` for each of them, what is in `about`, and its own SHA256.

    While files are being replaced there is no manifest: a file is never beside the manifest of an earlier one.
    """
    manifest.unlink(missing_ok=True)
    for name, content in files.items():
        if not isinstance(content, Path):
            write(manifest.with_name(name), content)
    body = {"format": 1, "files": {name: entry(content) for name, content in files.items()}, **(about or {})}
    body["sha256"] = signature(body)
    write(manifest, (json.dumps(body, indent=1, allow_nan=False) + "\n").encode())


def entry(content):
    """The manifest's entry for a file, given its bytes or its path."""
    if not isinstance(content, Path):
        return {"bytes": memoryview(content).nbytes, "sha256": digest(content)}
    with content.open("rb") as file:
        return {"bytes": content.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def verified_manifest(path):
    """The contents of a manifest, after checking it and every file in it against their SHA256; ValueError, naming the
    file, if one is missing, cut off or changed."""
    try:
        content = json.loads(read_text(path))
        if not isinstance(content, dict) or content.pop("sha256", None) != signature(content):
            raise ValueError("its SHA256 is not the one that it states")
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged or no manifest: {error}") from error
    for name, expected in content["files"].items():
        file = path.with_name(name)
        if not file.is_file():
            raise ValueError(f"{file} is missing")
        if (found := entry(file)) != expected:
            raise ValueError(f"{file} is damaged: its {found['bytes']:,} bytes don't have the SHA256 in {path.name}")
    return content


def signature(content):
    """The SHA256 of a JSON value, whatever the order of its keys."""
    return digest(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())


def digest(content):
    """SHA256 in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()
