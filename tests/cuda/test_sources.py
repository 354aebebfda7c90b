"""Every CUDA source compiles for current GPUs without register spills and has run in the emulator in every variant."""

import re

import pytest
from emulated_cuda.emulator import KERNEL, mark_of

from tinyvit.kernels import cuda
from tinyvit.kernels.cuda.source import FOLDER, OPTIONS, SOURCES, read

assert cuda  # brings all the sources
pytestmark = pytest.mark.cuda
ARCHITECTURES = (*(pytest.param(one, marks=pytest.mark.full) for one in ("sm_75", "sm_80")), "sm_90")
TEXTS = [(source, definitions) for source in SOURCES for definitions in source.variants]
NAMES = [f"{source.file}-{'-'.join(map(str, definitions.values()))}" for source, definitions in TEXTS]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("source, definitions", TEXTS, ids=NAMES)
def test_every_source_compiles_without_a_warning_and_without_spilled_registers(real, source, definitions, architecture):
    """With the options that CuPy adds. Blocks of as many registers as __launch_bounds__ says fit on an SM then."""
    from cupy.cuda import nvrtc

    if source.file == "tensor_attention.cu" or "bfloat16" in definitions.values():
        architecture = max(architecture, "sm_80")  # from Ampere on
    program = nvrtc.createProgram(source.text(**definitions), "", (), ())
    options = *OPTIONS, "-ftz=true", f"--gpu-architecture={architecture}", "--ptxas-options=-v"
    nvrtc.compileProgram(program, options)
    log = nvrtc.getProgramLog(program)
    nvrtc.destroyProgram(program)
    assert "warning" not in log.lower()
    entries = re.findall(r"Compiling entry function '(\w+)'", log)
    assert set(entries) == set(KERNEL.findall(source.text(**definitions)))
    memory = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log)
    assert len(memory) >= len(entries) and set(memory) == {("0", "0", "0")}, log


def test_every_file_belongs_to_one_source_and_is_ascii_except_for_its_comments():
    assert sorted(source.file for source in SOURCES) == sorted(path.name for path in FOLDER.glob("*.cu"))
    for path in FOLDER.glob("*.cu*"):
        code = re.sub(r"//[^\n]*", "", path.read_text(encoding="utf-8"))
        assert read(path.name).isascii() and code == re.sub(r"//[^\n]*", "", read(path.name)), path


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
