"""Runs a script with the real CuPy over a driver of CUDA that does nothing and counts.

    python tests/card/null.py SCRIPT [ARGUMENTS]

The script may `import null`: `counts()` since the last `reset()`. Needs the extra cuda12, gcc and nm.
The runtime is linked into CuPy's libraries, so each of its functions there is overwritten by a jump to driver.c's.
"""

import ctypes
import os
import re
import runpy
import subprocess
import sys
import sysconfig
from pathlib import Path

DRIVER = Path(__file__).with_name("driver.c")
FOLDER = Path(os.environ.get("NULL_CUDA", Path.home() / ".cache" / "tinyvit-null"))
LIBRARY = FOLDER / "libcuda.so.1"
QUALIFIERS = ("__device_builtin__", "__device_builtin_texture_type__", "__device_builtin_surface_type__",
              "__cudart_builtin__", "__builtin_align__(n)", "__align__(n)", "CUDARTAPI", "__host__",
              "__device__")  # fmt: skip
COUNTERS = ("launches", "gemms", "syncs", "h2d", "d2h", "d2d", "rtlaunch", "malloc", "graphs", "graph_kernels",
            "graph_products", "capture_syncs")  # fmt: skip


def build():
    """Compile the driver, and start this script again with it in the place of the system's."""
    nvidia = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
    (FOLDER / "crt").mkdir(parents=True, exist_ok=True)
    (FOLDER / "crt" / "host_defines.h").write_text("".join(f"#define {name}\n" for name in QUALIFIERS))
    include = [f"-I{FOLDER}", f"-I{nvidia / 'cuda_runtime' / 'include'}"]
    shared = ["-w", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", LIBRARY]
    subprocess.run(["gcc", *shared, *include, DRIVER], check=True)
    libraries = ":".join(map(str, [FOLDER, *nvidia.glob("*/lib")]))
    os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | {
        "NULL_CUDA": str(FOLDER), "LD_PRELOAD": str(LIBRARY), "LD_LIBRARY_PATH": libraries,
        "CUPY_CACHE_DIR": str(FOLDER / "kernels"), "OPENBLAS_NUM_THREADS": "1",
    })  # fmt: skip


def overwrite(path, start):
    """Overwrite the functions of the runtime in a library that is mapped at `start`."""
    libc, names = ctypes.CDLL(None), set(re.findall(r"^R f_(\w+)\(", DRIVER.read_text(), re.MULTILINE))
    for line in subprocess.run(["nm", path], capture_output=True, text=True).stdout.splitlines():
        offset, _, name = [*line.split(), "", ""][:3]
        if name in names and offset:
            target, place = ctypes.cast(getattr(driver, f"f_{name}"), ctypes.c_void_p).value, start + int(offset, 16)
            libc.mprotect(ctypes.c_void_p(place & ~4095), ctypes.c_size_t(8192), 7)
            ctypes.memmove(place, b"\x48\xb8" + target.to_bytes(8, "little") + b"\xff\xe0", 12)  # movabs rax; jmp rax


def replace_cuda():
    """Have CuPy call the driver for everything, and compile nothing."""
    import cupy
    import cupy_backends.cuda.api.runtime  # noqa: F401
    from cupy.cuda import compiler

    with open("/proc/self/maps") as maps:
        for line in maps:
            address, _, offset, *_, path = line.split()
            if "/cupy" in path and path.endswith(".so") and int(offset, 16) == 0:
                overwrite(path, int(address.partition("-")[0], 16))
    cupy.cuda.cublas.__file__ = str(LIBRARY)  # where the package looks up what it calls by ctypes
    program = compiler._NVRTCProgram
    program.__init__ = lambda self, *args, **kwargs: self.__dict__.update(ptr=None)
    program.compile = lambda self, *args: (b"nothing", {})
    program.__del__ = lambda self, *args: None


def counts():
    return {name: ctypes.c_longlong.in_dll(driver, f"fk_{name}").value for name in COUNTERS}


def reset():
    driver.fk_reset()


if __name__ == "__main__":
    if "LD_PRELOAD" not in os.environ:
        build()
    driver = ctypes.CDLL(str(LIBRARY), mode=ctypes.RTLD_GLOBAL)
    replace_cuda()
    sys.modules["null"] = sys.modules["__main__"]
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
