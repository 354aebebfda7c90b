import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tinyvit
from tinyvit import kernels, levels
from tinyvit.dispatch import operation
from tinyvit.kernels import in_numpy

FLOATS = np.ones(2, "float32")


@pytest.fixture
def name_of_level():
    """An operation that returns the level that it ran at, with a kernel at each."""

    @operation
    def name(x):
        return "reference"

    name.register(("numpy", "float32"), lambda x: "numpy", "numpy")
    name.register(("numpy", "float32"), lambda x: "fast", "fast")
    name.register(("numpy", "float64"), lambda x: "numpy", "numpy")
    return name


@pytest.mark.parametrize("level", kernels.LEVELS)
def test_using_a_level_runs_its_kernels(name_of_level, level):
    with kernels.using(level):
        assert name_of_level(FLOATS) == level == kernels.level()


def test_a_level_without_a_kernel_for_an_array_falls_back_on_the_one_below(name_of_level):
    with kernels.using("fast"):
        assert name_of_level(FLOATS.astype("float64")) == "numpy"
        assert name_of_level(FLOATS.astype("complex128")) == "reference"


def test_none_leaves_the_level_as_it_is_and_a_level_ends_with_its_block_even_after_an_error(name_of_level):
    before = kernels.level()
    with pytest.raises(RuntimeError), tinyvit.reference(), kernels.using(None):
        assert name_of_level(FLOATS) == "reference"
        raise RuntimeError
    assert kernels.level() == before


def test_all_levels_are_available_where_numba_is_installed_and_no_others():
    assert kernels.available() == ("reference", "numpy", "fast")
    with pytest.raises(ValueError, match="kernels: expected one of reference, numpy, fast, got 'quick'"):
        kernels.using("quick").__enter__()


def level_of_new_process(code, wanted):
    """The level of a new process, whether it has loaded numba, and whether ReLU has a kernel; or its last line of
    stderr."""
    program = f"{code}\nimport sys, numpy, tinyvit; tinyvit.functional.gelu(numpy.ones(3, 'float32'))\n"
    program += "print(tinyvit.kernels.level(), 'numba' in sys.modules, "
    program += "'kernels' in tinyvit.functional.relu.which(numpy.ones(3, 'float32')))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env={**os.environ, "TINYVIT_KERNELS": wanted}, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


HIDE_NUMBA = """
from importlib.machinery import PathFinder
find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name == "numba" else find(name, *rest)
"""
NO_COMPILER = "import os; os.environ['NUMBA_DISABLE_JIT'] = '1'"


@pytest.mark.end_to_end
@pytest.mark.parametrize("code, wanted, said", [
    ("", "", "^fast True"),
    *[("", level, f"^{level} {level == 'fast'} {level != 'reference'}") for level in kernels.LEVELS],
    ("", "x", "TINYVIT_KERNELS: expected one of reference, numpy, fast, got 'x'"),
    (HIDE_NUMBA, "", "^numpy False"),
    (HIDE_NUMBA, "fast", r"TINYVIT_KERNELS: 'fast' can't be used.*pip install 'tinyvit\[fast\]'"),
    (NO_COMPILER, "", "UserWarning: numba is installed but can't be used, .* are 'numpy': NUMBA_DISABLE_JIT is set"),
    (f"{NO_COMPILER}; import warnings; warnings.simplefilter('ignore')", "", "^numpy True"),
])  # fmt: skip
def test_a_process_has_the_level_of_its_environment_or_the_best_that_works(code, wanted, said):
    assert re.search(said, level_of_new_process(code, wanted))


def test_the_kernels_of_every_file_are_registered():
    files = {path.stem for path in Path(in_numpy.__file__).parent.glob("*.py")} - {"__init__", "in_numpy"}
    assert files <= vars(in_numpy).keys()


def test_kernels_are_imported_once_and_only_for_arrays_of_their_kind(name_of_level, monkeypatch):
    imported = []
    monkeypatch.setattr(levels, "_modules", {("fast", ("numpy", "float32")): ["kernels_of_a_test"]})
    monkeypatch.setattr(levels, "import_module", imported.append)
    with kernels.using("numpy"):
        name_of_level(FLOATS)
    with kernels.using("fast"):
        name_of_level(FLOATS.astype("float64"))
        assert not imported
        name_of_level(FLOATS)
        name_of_level(FLOATS)
    assert imported == ["kernels_of_a_test"]
