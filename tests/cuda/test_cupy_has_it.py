"""The stand-in has exactly what tinyvit uses of CuPy, checked against the real CuPy, which needs no GPU for that."""

import ast
import inspect
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pretend_cupy
import pytest

import tinyvit

pytestmark = pytest.mark.cuda
PACKAGE = Path(tinyvit.__file__).parent
LIBRARIES = {"xp", "cupy"}  # what an array's library is called in the package
ASKING = {"array_module", "library"}  # functions that return it


def first_line(function):
    """The signature `(a, b, c=1)`: the first line of a compiled function's docstring, or from `inspect`."""
    try:
        return str(inspect.signature(function))
    except (TypeError, ValueError):
        found = re.search(r"\((.*)\)", function.__doc__.strip().partition("\n")[0])
        assert found, f"nothing says what arguments {function} takes"
        return found[0]


def arguments(function):
    """The names of a function's arguments, in order."""
    text = re.sub(r"\[[^\]]*\]", "", first_line(function).strip("()"))
    parts = (part.partition("=")[0].partition(":")[0].strip() for part in text.split(","))
    return [part.split()[-1].lstrip("*\\") for part in parts if part not in ("", "/", "*", "\\*")]


def called_on_the_library():
    """{name: files} of every `xp.name`, `array_module(x).name` and the like in the package."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and is_library(node.value):
                found.setdefault(node.attr, set()).add(path.name)
    return found


def is_library(node):
    named = isinstance(node, ast.Name) and node.id in LIBRARIES
    call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ASKING
    modules = isinstance(node, ast.Subscript) and ast.unparse(node) == "sys.modules['cupy']"
    return named or call or modules


def offered():
    return {name for name in vars(pretend_cupy.cupy) if not name.startswith("_")}


def test_every_array_function_that_the_package_uses_is_in_the_stand_ins_tables():
    used = called_on_the_library()
    assert not {name: files for name, files in used.items() if name not in offered() and not name.startswith("__")}


def test_cupy_has_all_names_and_the_functions_and_methods_have_these_arguments(real):
    assert not {name for name in offered() if not hasattr(real, name)}
    for owner, table in ((real, pretend_cupy.FUNCTIONS), (real.ndarray, pretend_cupy.METHODS)):
        for name, named in table.items():
            assert set(named) <= set(arguments(getattr(owner, name))), name


@pytest.mark.parametrize("name", sorted(pretend_cupy.UFUNCS))
def test_cupy_has_the_ufunc_with_these_arguments_and_for_these_numbers(real, name):
    ufunc = getattr(real, name)
    assert set(pretend_cupy.UFUNC_ARGUMENTS) <= set(arguments(ufunc))
    loops = {loop.partition("->")[0] for loop in ufunc.types}
    assert any(set(loop) == {"D"} for loop in loops) == (name not in pretend_cupy.REAL_ONLY), loops


def test_cupy_has_the_ufuncs_at_and_the_error_function_of_real_numbers_alone(real):
    assert arguments(real.add.at) == ["self", "a", "indices", "b"]
    import cupyx.scipy.special

    loops = cupyx.scipy.special.erf.types
    assert {"f->f", "d->d"} <= set(loops) and not any("F" in loop or "D" in loop for loop in loops)


def test_cupys_arrays_have_every_property_and_operator_of_the_stand_in(real):
    own = {name for name in vars(pretend_cupy.ndarray) if name not in vars(object)}
    of_tests = {
        "__dict__", "__weakref__",
        "host", "memory", "wait", "whole", "result",  # what the stand-in and the tests look into it by
    }  # fmt: skip
    assert not {name for name in own - of_tests if not hasattr(real.ndarray, name)}
    assert {"c_contiguous", "f_contiguous"} <= set(dir(real._core.flags.Flags))


def test_cupys_types_are_numpys_and_it_answers_numpys_questions_about_a_device_array(real):
    assert all(getattr(real, name) is getattr(np, name) for name in pretend_cupy.TYPES)
    assert all(callable(getattr(real, name)) for name in pretend_cupy.NUMPYS)


def leaves(namespace, path=()):
    """(path, value) of everything in the stand-in's `cupy.cuda`."""
    for name, value in vars(namespace).items():
        if isinstance(value, SimpleNamespace):
            yield from leaves(value, (*path, name))
        else:
            yield (*path, name), value


@pytest.mark.parametrize("path", [path for path, _ in leaves(pretend_cupy.cupy.cuda)], ids=".".join)
def test_cupys_cuda_has_the_name_with_as_many_arguments_or_the_same_number(real, path):
    theirs, ours = real.cuda, dict(leaves(pretend_cupy.cupy.cuda))[path]
    for name in path:
        theirs = getattr(theirs, name)
    if isinstance(ours, int):
        assert theirs == ours
    elif inspect.isclass(ours):
        public = {name for name in dir(ours) if not name.startswith("_")} - {"current", "count", "numbers"}
        of_instances = {"id"} | ({"ptr"} if hasattr(getattr(theirs, "null", None), "ptr") else set())
        assert all(hasattr(theirs, name) or name in of_instances for name in public)
        assert issubclass(theirs, MemoryError) == issubclass(ours, MemoryError)
    else:
        assert len(arguments(theirs)) == len(inspect.signature(ours).parameters), first_line(theirs)
