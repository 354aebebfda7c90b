"""Prints the card and the versions, and tries whether CuPy can compute; exit status 1 if it can't."""

import sys

from tinyvit import backend
from tinyvit.bench import machine

print(machine.describe())
if reason := backend.why_no_gpu():
    sys.exit(f"no GPU: {reason}")
print(backend.gpu("cuda:0"), "compute capability", backend.capability("cuda:0"))
print(f"{backend.free_memory('cuda:0') / 1e9:.1f} GB free")
