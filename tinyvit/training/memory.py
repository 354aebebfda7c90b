"""Memory that a training needs again in its next step, kept by the process in between."""

import ctypes
import sys
from functools import cache

# Names of glibc's settings, from malloc.h.
TRIM_THRESHOLD, MMAP_MAX, ARENA_MAX = -1, -4, -8
NEVER = (1 << 31) - 1  # bytes: as many as the setting can say


@cache
def keep_freed_memory():
    """Have glibc keep freed arrays for the next step; elsewhere nothing happens.

    By default it hands memory back once the caches of a step are freed, and the system has to find and clear it again
    page by page, which takes up to a tenth of the step's time. So no array gets a mapping of its own, the heap's end
    is never cut off, and all threads share one heap: a thread's own is unmapped as soon as it is empty. The process
    stays as large as it once was.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:  # musl's C library has none
        mallopt(MMAP_MAX, 0)
        mallopt(TRIM_THRESHOLD, NEVER)
        mallopt(ARENA_MAX, 1)
