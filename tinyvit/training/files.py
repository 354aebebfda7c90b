"""Files that are whole or absent, whenever the process dies, and manifests that tell whether they still are."""

import errno
import hashlib
import json
import os
from contextlib import contextmanager, suppress

import numpy as np

from tinyvit.backend import to_numpy

METADATA = {"format": "pt"}  # weights are laid out as PyTorch has them; the one key that its loaders ask for


def write(path, content):
    """Put a file in place in one go: to a temporary name, to the disk, then renamed.

    Raises ValueError if the folder has gone, OSError for a full disk or a missing permission; a file that was there
    before is then still there.
    """
    with replacing(path) as file:
        file.write(content)


@contextmanager
def replacing(path, again="go on with tinyvit train --resume"):
    """A file to write to, piece by piece, that is put in place as `write` says when the block ends without an error.

    again   what to do once there is room, where the disk was full
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)  # the new name, too, has to reach the disk
    except BaseException as error:  # a full disk, say: what was written so far only takes up more of it
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, FileNotFoundError) and not path.parent.exists():
            raise ValueError(f"{path.parent} was removed while it was in use; {path.name} can't be saved") from error
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise OSError(
                f"no room to save {path}: {error.strerror}; nothing saved before is damaged, so make room and {again}"
            ) from error
        raise


def sync_folder(path):
    """Have a folder's entries on the disk."""
    if os.name == "posix":
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def tensor_bytes(tensors):
    """Arrays by name as the bytes of a safetensors file; equal arrays give equal bytes."""
    from safetensors.numpy import save

    # safetensors corrupts arrays that are not C-contiguous; np.ascontiguousarray would make vectors of scalars.
    return save({name: np.asarray(to_numpy(a), order="C") for name, a in tensors.items()}, METADATA)


def load_tensors(path):
    """Arrays by name from a safetensors file; ValueError if it is missing or damaged."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    if not path.is_file():
        raise ValueError(f"{path} is missing")
    try:
        tensors = load_file(path)
        # Where ml_dtypes was imported, bfloat16 would be an array here, and elsewhere not.
        unknown = {str(array.dtype) for array in tensors.values() if array.dtype.kind not in "biufc"}
        if unknown:
            raise TypeError(f"its arrays are {', '.join(sorted(unknown))}")
        return tensors
    except (SafetensorError, AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        # All but the first: shapes or dtypes that NumPy doesn't have.
        raise ValueError(f"{path} is damaged, of an unknown dtype, or not a safetensors file: {error}") from error


# -- manifests --------------------------------------------------------------------------------------------------------

LARGEST_MANIFEST = 1 << 26  # bytes; a hundred thousand evaluations fit


def write_with_manifest(manifest, files, about=None):
    """Write `files` (bytes by name) beside the JSON file `manifest`, and last of all that, with what is in `about`.

    The manifest holds size and SHA256 of each file, and a SHA256 of itself. While they are being replaced there is
    none: a file is never beside a manifest of another time.
    """
    manifest.unlink(missing_ok=True)
    for name, content in files.items():
        write(manifest.with_name(name), content)
    entries = {name: {"bytes": len(content), "sha256": digest(content)} for name, content in files.items()}
    write_manifest(manifest, entries, about)


def write_manifest(manifest, entries, about=None):
    """Write the JSON file `manifest` of files that are there: their sizes and SHA256, by name, and its own SHA256."""
    body = {"format": 1, "files": entries, **(about or {})}
    signed = {**body, "sha256": digest(canonical(body))}
    write(manifest, (json.dumps(signed, indent=1, allow_nan=False) + "\n").encode())


def read_manifest(path):
    """What a manifest says, after comparing it and every file that it names with their SHA256.

    Raises ValueError, naming the file, if one is missing, cut off or changed.
    """
    try:
        if path.stat().st_size > LARGEST_MANIFEST:
            raise ValueError(f"it has more than {LARGEST_MANIFEST:,} bytes")
        content = json.loads(path.read_bytes())
        stated = content.pop("sha256")
        if content["format"] != 1:
            raise ValueError(f"format {content['format']!r} is unknown")
        if stated != digest(canonical(content)):
            raise ValueError("its SHA256 is not the one that it states")
        files = content["files"].items()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is damaged or no manifest: {error}") from error
    for name, entry in files:
        file = path.with_name(name)
        if not file.is_file():
            raise ValueError(f"{file} is missing")
        size = file.stat().st_size
        if size != entry["bytes"]:
            raise ValueError(f"{file} is damaged: it has {size:,} bytes, its manifest says {entry['bytes']:,}")
        with file.open("rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() != entry["sha256"]:
                raise ValueError(f"{file} is damaged: its SHA256 is not the one in {path.name}")
    return content


def canonical(content):
    """The one text of a JSON value, whatever the order of its keys."""
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def digest(content):
    """SHA256 in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()
