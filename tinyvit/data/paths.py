"""Paths as people write them."""

import os
from pathlib import Path


def expanded(path):
    """`path` as a Path, with ~ and ~user as their homes; as it stands for a user that the system doesn't know, as in a
    shell (Path.expanduser raises RuntimeError for one)."""
    return Path(os.path.expanduser(path))
