"""Memory that a training needs again in its next step, kept by the process in between."""

import ctypes
import sys
from contextlib import contextmanager
from functools import cache

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
    """What glibc tells of its heap, from malloc.h."""

    _fields_ = [
        *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks")),
        *((name, ctypes.c_size_t) for name in ("uordblks", "fordblks", "keepcost")),
    ]


def freed_memory():
    """Bytes that this process has freed and holds for what comes next; 0 where nobody says."""
    mallinfo2 = of_glibc("mallinfo2")
    if mallinfo2 is None:
        return 0
    mallinfo2.restype = Mallinfo2
    return mallinfo2().fordblks


def of_glibc(name):
    """A function of the C library; None where there is no such function: not on Linux, or with musl's library."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
