"""Locks between processes that the system takes back when their process is gone, however it ended."""

import os


def try_lock(file):
    """Lock an open file until it is closed; False if another process has it.

    Raises OSError where the file system knows no locks.
    """
    if os.name == "nt":
        import msvcrt

        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
    else:
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
