"""The process's memory: what it keeps from one step to the next, and how much it can still allocate."""

import ctypes
import sys
from contextlib import contextmanager
from functools import cache
from math import inf
from pathlib import Path

from tinyvit.backend import free_memory, physical_memory

# glibc's settings, from malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -3, -4, -8
MAX_THRESHOLD_BYTES = (1 << 31) - 1  # that a setting can hold
MMAP_THRESHOLD_BYTES = 1 << 20       # outside steps an array as large has a mapping of its own
MAX_MAPPINGS = 1 << 16               # of arrays: glibc's default
steps = []  # an entry for each step that runs; appending and popping need no lock


@contextmanager
def freed_memory_kept():
    """Inside this glibc keeps freed arrays for the next step; elsewhere than on Linux nothing happens.

    By default it hands memory back once the caches of a step are freed, and the system has to find and clear it again
    page by page, which takes up to a tenth of the step's time. So no array gets a mapping of its own inside, the heap's
    end is never cut off, and all threads share one heap: a thread's own is unmapped as soon as it is empty. The process
    stays as large as its largest step, until `give_back_freed_memory`. Large arrays that are made outside have mappings
    of their own, which go back to the system when they are freed.
    """
    mallopt = prepared_mallopt()
    if mallopt is None:
        yield
        return
    steps.append(None)
    mallopt(M_MMAP_MAX, 0)
    try:
        yield
    finally:
        steps.pop()
        if not steps:
            mallopt(M_MMAP_MAX, MAX_MAPPINGS)


@cache
def prepared_mallopt():
    """glibc's `mallopt`, after what is set once; None where there is none."""
    mallopt = glibc_function("mallopt")
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)
        mallopt(M_TRIM_THRESHOLD, MAX_THRESHOLD_BYTES)
        mallopt(M_ARENA_MAX, 1)
    return mallopt


def give_back_freed_memory():
    """Return the memory that this process has freed to the system, at the end of a training, say."""
    trim = glibc_function("malloc_trim")
    if trim is not None:
        trim(ctypes.c_size_t(0))


def glibc_function(name):
    """A function of the C library; None where there is no such function: not on Linux, or with musl's library."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None


# -- available memory -------------------------------------------------------------------------------------------------

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")


def available_memory(device="cpu"):
    """Bytes that can still be allocated, or None where the system doesn't say. On a GPU, its free memory.

    On Linux the least of: free memory (with file caches and swap), what the control groups (a container's) leave, and
    what `ulimit -v` leaves. On macOS it is the machine's memory, used or not; on Windows unknown.
    """
    if device != "cpu":
        return free_memory(device)
    give_back_freed_memory()
    system = read_numbers(PROC / "meminfo")
    if sys.platform != "linux" or "MemAvailable" not in system:
        return physical_memory()
    return max(0, min(system["MemAvailable"] + system.get("SwapFree", 0), *bytes_left_by_limits()))


def bytes_left_by_limits():
    """Bytes left below `ulimit -v`, and below the limit of each control group around this process."""
    import resource  # POSIX's

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    yield limit - read_numbers(PROC / "self/status").get("VmSize", 0) if limit != resource.RLIM_INFINITY else inf
    for line in read_lines(PROC / "self/cgroup"):
        if line.startswith("0::/"):  # of version 2
            group = CGROUPS / line[4:]
            yield from map(bytes_left_by_group, (group, *group.parents))


def bytes_left_by_group(folder):
    """Bytes left below one control group's limit. File caches count as free."""
    try:
        limit, used = (int((folder / name).read_text()) for name in ("memory.max", "memory.current"))
    except (OSError, ValueError):  # there is no such group, or its limit is "max"
        return inf
    pages = read_numbers(folder / "memory.stat", unit=1)
    return limit - used + pages.get("inactive_file", 0) + pages.get("active_file", 0)


def read_numbers(path, unit=1024):
    """The lines "name: 5 kB" of a file, as bytes by name; none if it can't be read."""
    fields = (line.replace(":", " ").split() for line in read_lines(path))
    return {name: unit * int(value) for name, value, *_ in (f for f in fields if len(f) > 1) if value.isdigit()}


def read_lines(path):
    """The lines of a file; none if it can't be read."""
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
