"""Runs CUDA kernels on a CPU: the source that a GPU gets, compiled by a C++ compiler with a `cuda.h` of our own."""

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from functools import cache
from math import prod
from pathlib import Path
from typing import ClassVar

import numpy as np

HERE = Path(__file__).parent
NVIDIA = (HERE.parents[1] / "tinyvit/kernels/cuda/nvidia.cuh").read_text()
KERNEL = re.compile(r'extern\s+"C"\s+__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\s*\(')
FLAGS = ("-std=c++17", "-O1", "-fPIC", "-shared", "-ffp-contract=off", "-Wno-narrowing", "-fno-strict-aliasing")
SCALARS = {"i8": (np.int64, int), "u8": (np.uint64,), "i4": (np.int32,), "u4": (np.uint32,), "f4": (np.float32,)}


@cache
def folder():
    """The folder where compiled kernels are cached."""
    path = Path(os.environ.get("TINYVIT_EMULATOR_CACHE") or f"{tempfile.gettempdir()}/tinyvit-emulated-{os.getuid()}")
    path.mkdir(parents=True, exist_ok=True)
    return path


@cache
def compiler():
    found = next(filter(None, map(shutil.which, (os.environ.get("CXX", "c++"), "c++", "g++", "clang++"))), None)
    assert found, "the kernels' tests need a C++ compiler, such as g++"
    return found


class Module:
    """A replacement for CuPy's RawModule whose kernels run on the CPU."""

    def __init__(self, text):
        assert NVIDIA in text, "the text lacks nvidia.cuh"
        self.text, text = text, text.replace(NVIDIA, "")
        self.names = KERNEL.findall(text)
        exported = "\n".join(
            f'extern "C" void run_{name}(void **arguments, const unsigned int *grid, const unsigned int *block, '
            f"unsigned long long seed) {{ emulator::launch({name}, arguments, grid, block, seed); }}\n"
            f'extern "C" void describe_{name}(char *into) {{ emulator::describe({name}, into); }}'
            for name in self.names
        )
        self.library = load("\n".join([(HERE / "cuda.h").read_text(), text, exported]))

    def get_function(self, name):
        assert name in self.names, f"no kernel {name!r} among {self.names}"
        kinds = ctypes.create_string_buffer(1000)
        self.library[f"describe_{name}"](kinds)
        run, kinds, mark = self.library[f"run_{name}"], kinds.value.decode().split(), mark_of(self.text, name)

        return lambda *launched: launch(run, kinds, name, mark, *launched)


def mark_of(text, name):
    """The file that says that a kernel was launched, by any process."""
    return folder() / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}-{name}.ran"


@cache
def load(text):
    """Compile a source and load the shared library."""
    digest = hashlib.sha256("\n".join([text, compiler(), *FLAGS]).encode()).hexdigest()[:24]
    library = folder() / f"{digest}.so"
    assert text not in Broken.texts, Broken.texts[text]
    if not library.exists():
        with tempfile.TemporaryDirectory(dir=folder()) as build:
            source, built = Path(build, "kernel.cpp"), Path(build, "kernel.so")
            source.write_text(text)
            done = subprocess.run([compiler(), *FLAGS, str(source), "-o", str(built)], capture_output=True, text=True)
            if done.returncode:
                Broken.texts[text] = done.stderr
            assert done.returncode == 0, done.stderr
            built.rename(library)
    return ctypes.CDLL(str(library))


class Broken:
    """Compiler messages of sources that failed; cached since hypothesis would compile them hundreds of times."""

    texts: ClassVar[dict] = {}


ORDERS = (0, 1, 2)  # seeds of the orders that threads run in; 0 is sequential
TRIED = set()       # kernels, with about how many blocks of how many threads, that have run in all of them


def launch(run, kinds, name, mark, grid, block, arguments):
    """Run a kernel on the arguments that CuPy would get.

    The first launch on about so many blocks runs in several orders of the threads, which must write the same bits.
    """
    assert len(arguments) == len(kinds), f"{name}: {len(kinds)} parameters, {len(arguments)} arguments"
    values, arrays = [], []
    for kind, argument in zip(kinds, arguments):
        if kind == "p8" and not isinstance(argument, np.generic):
            arrays.append(argument)
            values.append(ctypes.c_void_p(argument.data.ptr))
        elif kind == "p8":
            assert isinstance(argument, np.uintp) and argument == 0, f"{name}: expected an array, got {argument!r}"
            values.append(ctypes.c_void_p(0))
        else:
            assert type(argument) in SCALARS[kind], f"{name}: expected {kind}, got {argument!r}"
            values.append(np.ctypeslib.as_ctypes(np.array(argument)))
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    sizes = [(ctypes.c_uint * 3)(*(*side, 1, 1)[:3]) for side in (grid, block)]
    kind = mark, prod(grid).bit_length(), tuple(block)
    if kind in TRIED:
        return run(pointers, *sizes, ctypes.c_ulonglong(ORDERS[0]))
    before, results = [array.memory().copy() for array in arrays], []
    for seed in ORDERS:
        for array, content in zip(arrays, before):
            array.memory()[...] = content
        run(pointers, *sizes, ctypes.c_ulonglong(seed))
        results.append([array.memory().tobytes() for array in arrays])
    assert results == [results[0]] * len(ORDERS), f"{name}: the order of the threads changes the result"
    TRIED.add(kind)
    mark.touch()
