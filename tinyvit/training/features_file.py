"""Features in a .npy file that is written row by row, with a file of the images' paths beside it."""

import os
from itertools import chain

import numpy as np

from tinyvit.files import expanded, replacing


def save_features(files, out, names):
    """Write the features of images to `out`, float32 (n, D), and their paths to `names`, a line each, in their order.

    files   `FileFeatures` without errors; no more than one of them is held at a time
    out     a .npy file, as `numpy.load` reads it, also mapped
    names   a text file in the encoding of the system's file names

    Both files are put in place when they are complete, the names first. Returns (n, D), or (0, None) where nothing is
    written.
    Raises ValueError for a path with a line break, which no line can hold.
    """
    files = iter(files)
    first = next(files, None)
    if first is None:
        return 0, None
    count, D = 0, len(first.features)
    with replacing(out) as rows, replacing(names) as lines:
        write_header(rows, 0, D)
        for file in chain([first], files):
            if not fits_a_line(file.path):
                raise ValueError(f"{str(file.path)!r} has a line break in its name, so {names} can't hold it")
            rows.write(file.features.astype("<f4").tobytes())
            lines.write(os.fsencode(file.path) + b"\n")
            count += 1
        rows.seek(0)
        write_header(rows, count, D)
    return count, D


def write_header(file, n, D):
    """The header of a .npy file of float32 (n, D). NumPy pads it, so its length doesn't depend on n."""
    np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (n, D)})


def fits_a_line(path):
    return not set("\r\n") & set(str(path))


def check_new_files(out, names=None):
    """`out` and the file for the names, by default `out` with the suffix .txt, as paths.

    Raises ValueError unless `out` ends with .npy, neither exists, and their folders do.
    """
    out = expanded(out)
    if out.suffix != ".npy":
        raise ValueError(f"features are written to a .npy file, got --out {out}; expected a name such as features.npy")
    names = out.with_suffix(".txt") if names is None else expanded(names)
    for path, option in ((out, "--out"), (names, "--names")):
        if os.path.lexists(path):
            raise ValueError(f"{path} exists already; remove it, or choose another name with {option}")
        if not path.absolute().parent.is_dir():
            raise ValueError(f"{path} is in {path.parent}, which doesn't exist; choose another name with {option}")
    if names.absolute() == out.absolute():
        raise ValueError(f"features and names would both be written to {out}; choose another name with --names")
    return out, names
