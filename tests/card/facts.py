"""What is here: the card, versions, and whether CuPy can compute; exit status 1 if it can't."""

import platform
import sys
from importlib import metadata

from tinyvit import backend

print("Python", platform.python_version())
for name in ("numpy", "cupy-cuda13x", "cupy-cuda12x", "ml_dtypes", "torch", "numba", "hypothesis", "pytest-xdist"):
    try:
        print(name, metadata.version(name))
    except metadata.PackageNotFoundError:
        print(name, "is missing")
if reason := backend.why_no_gpu():
    sys.exit(f"no GPU: {reason}")
print(backend.gpu("cuda:0"), "compute capability", backend.capability("cuda:0"))
print(f"{backend.free_memory('cuda:0') / 1e9:.1f} of {backend.total_memory('cuda:0') / 1e9:.1f} GB free")
