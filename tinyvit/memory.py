"""How much memory this machine has."""

import os


def expect_memory(needed, what, advice=""):
    """Raise ValueError, which says `what` needs them, if this machine has fewer than `needed` bytes of memory."""
    memory = physical_memory()
    if memory is not None and needed > memory:
        raise ValueError(f"{what} {needed / 2**30:.1f} GiB, but this machine has {memory / 2**30:.1f}{advice}")


def physical_memory():
    """Bytes of memory that this machine has, or None where the system doesn't say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
