"""Processor, memory, load and versions of this machine: a time means nothing without them."""

import os
import platform
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

import tinyvit
from tinyvit.backend import physical_memory
from tinyvit.training.memory import PROC, read_lines
from tinyvit.training.threads import cores


def describe():
    """Processor, memory, load and versions, as a dict for JSON; None for what the system doesn't report."""
    found = {"processor": processor(), "cores": cores(), "memory_bytes": physical_memory(),
             "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None}  # fmt: skip
    with suppress(ImportError):  # on a machine with a GPU there may be only NumPy and CuPy
        from threadpoolctl import threadpool_info

        blas = [f"{library['internal_api']} {library['version']} ({library.get('architecture', 'unknown')})"
                for library in threadpool_info() if library["user_api"] == "blas"]  # fmt: skip
        found["blas"] = blas[0] if blas else None  # as in "openblas 0.3.31 (SkylakeX)"
    return found | {
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "tinyvit": tinyvit.__version__,
        **{name: version_of(name) for name in ("numpy", "numba", "torch", "timm")},
    }


def processor():
    """The processor's name."""
    names = (line.partition(":")[2].strip() for line in read_lines(PROC / "cpuinfo") if line.startswith("model name"))
    return next(names, None) or platform.processor() or platform.machine() or None


def version_of(package):
    with suppress(PackageNotFoundError):
        return version(package)
