"""What NVIDIA's compiler says of a CUDA source; it needs no GPU."""

import re
from functools import cache

from tinyvit.kernels.cuda.source import OPTIONS

ARCHITECTURE = "sm_90"


@cache
def compiled(text):
    """By kernel of a CUDA source: registers, spilled bytes, shared memory of a block, and instructions of its PTX.

    An empty dict where CuPy's NVRTC is not installed.
    """
    try:
        from cupy.cuda import nvrtc
    except ImportError:
        return {}
    log, code = (nvrtc_output(nvrtc, text, *options) for options in (
        (f"--gpu-architecture={ARCHITECTURE}", "--ptxas-options=-v"), ("--gpu-architecture=compute_90",)))  # fmt: skip
    found = {}
    for name, said in re.findall(r"Compiling entry function '(\w+)'(.*?)(?=Compiling entry|\Z)", log[0], re.DOTALL):
        registers, spills = re.search(r"Used (\d+) registers", said), re.findall(r"(\d+) bytes spill", said)
        shared, body = re.search(r"(\d+) bytes smem", said), code[1].partition(f".entry {name}(")[2]
        body = body.partition("\n}")[0].partition("\n{")[2]
        found[name] = {
            "registers": int(registers[1]),
            "spilled": sum(map(int, spills)),
            "shared": int(shared[1]) if shared else 0,
            "instructions": len(re.findall(r"^\s+(?:@!?%p\d+ )?[a-z][\w.]*\b[^;]*;", body, re.MULTILINE)),
        }
    return found


def nvrtc_output(nvrtc, text, *options):
    """NVRTC's messages and, if it was asked for no card's own code, the PTX."""
    program = nvrtc.createProgram(text, "", (), ())
    try:
        nvrtc.compileProgram(program, (*OPTIONS, "-ftz=true", *options))
        ptx = nvrtc.getPTX(program).decode() if "compute" in options[0] else ""
        return nvrtc.getProgramLog(program), ptx
    finally:
        nvrtc.destroyProgram(program)
