"""The memory use of this process in bytes; None where the system doesn't report it."""

import sys
from pathlib import Path

STATUS = Path("/proc/self/status")


def resident():
    """The memory in use now."""
    return from_status("VmRSS")


def peak():
    """The peak memory of this process.

    On Linux not from `getrusage`, whose peak includes that of the parent process.
    """
    from_linux = from_status("VmHWM")
    if from_linux is not None:
        return from_linux
    try:
        import resource
    except ImportError:  # Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def from_status(name):
    try:
        lines = STATUS.read_text().splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), None)
