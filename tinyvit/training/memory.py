"""The process's memory: what it keeps from one step to the next, and how much it can still allocate."""

import ctypes
import sys
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tinyvit.backend import free_memory
from tinyvit.data.folder import physical_memory

# Names of glibc's settings, from malloc.h.
TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX, ARENA_MAX = -1, -3, -4, -8
NEVER = (1 << 31) - 1  # bytes: as many as the setting can say
MAPPINGS = 1 << 16     # of arrays, at most: glibc's default
LARGE = 1 << 20        # bytes: outside steps an array as large has a mapping of its own
steps = []             # an entry for each step that runs; appending and popping need no lock

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
    mallopt(MMAP_MAX, 0)
    try:
        yield
    finally:
        steps.pop()
        if not steps:
            mallopt(MMAP_MAX, MAPPINGS)


@cache
def prepared_mallopt():
    """glibc's `mallopt`, after what is set once; None where there is none."""
    mallopt = of_glibc("mallopt")
    if mallopt is not None:
        mallopt(MMAP_THRESHOLD, LARGE)
        mallopt(TRIM_THRESHOLD, NEVER)
        mallopt(ARENA_MAX, 1)
    return mallopt


def give_back_freed_memory():
    """Let the system have again what this process has freed: at the end of a training, say."""
    trim = of_glibc("malloc_trim")
    if trim is not None:
        trim(ctypes.c_size_t(0))


class Mallinfo2(ctypes.Structure):
    """glibc's statistics of its heap, from malloc.h."""

    _fields_ = [
        *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks")),
        *((name, ctypes.c_size_t) for name in ("uordblks", "fordblks", "keepcost")),
    ]


def freed_memory():
    """Bytes that this process has freed and holds for what comes next; 0 if unknown."""
    mallinfo2 = of_glibc("mallinfo2")
    if mallinfo2 is None:
        return 0
    mallinfo2.restype = Mallinfo2
    return mallinfo2().fordblks


def of_glibc(name):
    """A function of the C library; None where there is no such function: not on Linux, or with musl's library."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None


# -- how much there is ------------------------------------------------------------------------------------------------

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
LIMITS = {"RLIMIT_AS": "VmSize", "RLIMIT_DATA": "VmData"}  # `ulimit -v` and `-d`, and their counters
UNLIMITED = 1 << 60  # bytes: version 1 of the control groups states a larger number where there is no limit


def available_memory(device="cpu"):
    """Bytes that can still be allocated, or None where the system doesn't say. On a GPU, its free memory.

    On Linux the least of: free memory (with file caches and swap), what the control groups (a container's) leave, and
    what `ulimit` leaves. Memory that this process freed and kept is added to each. On macOS it is the machine's memory,
    used or not; on Windows unknown.
    """
    if device != "cpu":
        return free_memory(device)
    information = numbers(PROC / "meminfo")
    if "MemAvailable" not in information:
        return physical_memory()
    swap = information.get("SwapFree", 0)
    system = [information["MemAvailable"], *limits_of_groups()]
    return max(0, min([min(system) + swap, *limits_of_process()]) + freed_memory())


def limits_of_groups():
    """Bytes left below the limit of each control group of this process, of versions 2 and 1."""
    try:
        lines = (PROC / "self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            names, root = ("memory.max", "memory.current", ""), CGROUPS
        elif "memory" in controllers.split(","):
            names, root = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"), CGROUPS / "memory"
        else:
            continue
        group = root / path.lstrip("/")
        for folder in [group, *group.parents]:  # the group's own limit, and that of every group around it
            if folder.is_relative_to(root):
                yield from limit_of_group(folder, *names)


def limit_of_group(folder, limit, usage, prefix):
    """Bytes left below one group's limit; nothing if it has none. File pages count as free."""
    try:
        limit, used = ((folder / name).read_text().strip() for name in (limit, usage))
    except OSError:
        return
    if limit.isdigit() and used.isdigit() and int(limit) < UNLIMITED:
        pages = numbers(folder / "memory.stat", unit=1)
        yield int(limit) - int(used) + sum(pages.get(f"{prefix}{kind}_file", 0) for kind in ("inactive", "active"))


def limits_of_process():
    """Bytes left below each limit of this process."""
    try:
        import resource
    except ImportError:  # Windows
        return
    status = numbers(PROC / "self/status")
    for name, counted in LIMITS.items():
        limit = resource.getrlimit(getattr(resource, name))[0]
        if limit != resource.RLIM_INFINITY and counted in status:
            yield limit - status[counted]


def numbers(path, unit=1024):
    """The lines "name: 5 kB" of a file, as bytes by name; none if it can't be read."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    fields = (line.replace(":", " ").split() for line in lines)
    return {name: unit * int(value) for name, value, *_ in (f for f in fields if len(f) > 1) if value.isdigit()}
