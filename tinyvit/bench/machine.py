"""Processor, memory, load and versions of this machine: a time means nothing without them."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import tinyvit
from tinyvit.training.threads import cores


def describe():
    """Processor, memory, load and versions, as a dict for JSON; None for what the system doesn't report."""
    return {
        "processor": processor(),
        "cores": cores(),
        "memory_bytes": memory_bytes(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "tinyvit": tinyvit.__version__,
        **{name: installed(name) for name in ("numpy", "numba", "torch")},
        "blas": blas(),
    }


def processor():
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, None) or platform.processor() or platform.machine() or None


def memory_bytes():
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def installed(package):
    """A package's version, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def blas():
    """NumPy's BLAS, as in "openblas 0.3.31 (SkylakeX)"."""
    from threadpoolctl import threadpool_info

    for library in threadpool_info():
        if library["user_api"] == "blas":
            kind = f" ({library['architecture']})" if library.get("architecture") else ""
            return f"{library['internal_api']} {library['version']}{kind}"
    return None
