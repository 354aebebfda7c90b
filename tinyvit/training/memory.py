"""Memory that a training needs again in its next step, kept by the process in between."""

import ctypes
import sys

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # names of glibc's settings, from malloc.h
LARGEST = 1 << 30  # bytes


def keep_freed_memory():
    """Have glibc keep freed arrays of up to a gigabyte for the next step; elsewhere nothing happens.

    By default it hands memory back once the caches of a step are freed, and the system has to find and clear it again
    page by page, which takes up to a tenth of the step's time. The process stays as large as it once was.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl's C library has none
    if mallopt is not None:
        mallopt(MMAP_THRESHOLD, LARGEST)
        mallopt(TRIM_THRESHOLD, LARGEST)
