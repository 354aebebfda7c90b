"""Every CUDA source compiles for current GPUs without register spills and has run in the emulator in every variant."""

import re
from functools import cache

import pytest
from emulated_cuda.emulator import KERNEL, mark_of

from tinyvit.kernels import cuda
from tinyvit.kernels.cuda.source import FOLDER, OPTIONS, SOURCES, read

assert cuda  # brings all the sources
pytestmark = pytest.mark.cuda
ARCHITECTURES = (pytest.param("sm_80", marks=pytest.mark.full), "sm_90")
SHARED = {"sm_80": 164, "sm_90": 228, "sm_100": 228}  # KiB of an SM; a block takes 1 KiB more than it asks for
TEXTS = [(source, definitions) for source in SOURCES for definitions in source.variants]
NAMES = [f"{source.file}-{'-'.join(map(str, definitions.values()))}" for source, definitions in TEXTS]

OF_ATTENTION = [text for text in TEXTS if "attention" in text[0].file]
# Blocks that fit on an SM of each kernel, at least, by the file.
FIT = {"fused_attention.cu": {"attention_forward": 4, "attention_dq": 3, "attention_dk_dv": 3}}


@cache
def compiled(text, architecture):
    """The GPU compiler's messages on a source, with the options that CuPy adds; raises if it doesn't compile."""
    from cupy.cuda import nvrtc

    program = nvrtc.createProgram(text, "", (), ())
    try:
        options = *OPTIONS, "-ftz=true", f"--gpu-architecture={architecture}", "--ptxas-options=-v"
        nvrtc.compileProgram(program, options)
        return nvrtc.getProgramLog(program)
    finally:
        nvrtc.destroyProgram(program)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("source, definitions", TEXTS, ids=NAMES)
def test_every_source_compiles_without_a_warning_and_without_spilling_registers(
    real, source, definitions, architecture
):
    log = compiled(source.text(**definitions), architecture)
    assert "warning" not in log.lower()
    entries = re.findall(r"Compiling entry function '(\w+)'", log)
    assert set(entries) == set(KERNEL.findall(source.text(**definitions)))
    memory = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log)
    assert len(memory) >= len(entries) and set(memory) == {("0", "0", "0")}, log


def blocks_per_sm(log, text, architecture):
    """How many blocks of each kernel an SM takes at once, by its registers, shared memory and threads."""
    threads = {name: int(bound) for bound, name in re.findall(r"__launch_bounds__\((\d+)[^)]*\)\s*(\w+)", text)}
    used = re.findall(
        r"Compiling entry function '(\w+)'.*?Used (\d+) registers(?:.*?, (\d+) bytes smem)?", log, re.DOTALL
    )
    counts = {}
    for name, registers, shared in used:
        warps = threads[name] // 32
        of_warp = -(-int(registers) // 8) * 8 * 32
        by_registers = 65536 // 4 // of_warp * 4 // warps  # a quarter of them, and of the warps, to each scheduler
        by_shared = SHARED[architecture] // (-(-int(shared or 0) // 1024) + 1)
        counts[name] = min(by_registers, by_shared, 64 // warps)
    return counts


@pytest.mark.full
@pytest.mark.parametrize("architecture", SHARED)
@pytest.mark.parametrize("source, definitions", OF_ATTENTION, ids=[NAMES[TEXTS.index(text)] for text in OF_ATTENTION])
def test_two_blocks_or_more_of_an_attention_kernel_fit_on_an_sm(real, source, definitions, architecture):
    """While one loads to shared memory, another computes. Those of ordinary cores need more: they issue more."""
    text = source.text(**definitions)
    log = compiled(text, architecture)
    assert "0 bytes spill stores" in log and not re.search(r"[1-9]\d* bytes (stack|spill)", log)
    counts = blocks_per_sm(log, text, architecture)
    fit = FIT.get(source.file, dict.fromkeys(counts, 2))
    assert set(counts) == set(fit) == set(KERNEL.findall(text)), counts
    assert all(counts[name] >= fit[name] for name in counts), counts


def test_the_compiler_is_asked_for_warnings_and_spills(real):
    spilling = """extern "C" __global__ void f(float *x) {
        int unused; float y[999]; for (int i = 0; i < 999; i++) y[i] = x[i]; x[0] = y[int(x[1])];
    }"""
    log = compiled(spilling, "sm_90")
    assert "warning" in log
    assert re.search(r"[1-9]\d* bytes stack frame", log)


@pytest.mark.parametrize("file", sorted(path.name for path in FOLDER.glob("*.cu*")))
def test_sources_are_ascii_except_for_their_comments(file):
    assert read(file).isascii()
    code = re.sub(r"//[^\n]*", "", (FOLDER / file).read_text(encoding="utf-8"))
    assert code.isascii() and code == re.sub(r"//[^\n]*", "", read(file))


def test_every_file_belongs_to_one_source():
    files = [source.file for source in SOURCES]
    assert sorted(files) == sorted(path.name for path in FOLDER.glob("*.cu"))


def test_no_source_adds_up_in_an_order_that_changes():
    for source in SOURCES:
        text = re.sub(r"//[^\n]*", "", source.text(**source.variants[0]))
        assert not re.search(r"\batomic\w*\(|#include", text), source.file


def test_every_kernel_has_run_in_every_variant():
    """Must run by itself after the others, which may be in several processes: conftest.py leaves it out else."""
    never = [
        (source.file, name, definitions)
        for source, definitions in TEXTS
        for name in KERNEL.findall(source.text(**definitions))
        if not mark_of(source.text(**definitions), name).exists()
    ]
    assert not never, "\n".join(map(str, never))
