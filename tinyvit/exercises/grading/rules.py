"""Modules, names and attributes that a graded solution may use."""

MODULES = frozenset({
    "abc", "bisect", "cmath", "collections", "collections.abc", "copy", "dataclasses", "enum", "fractions", "functools",
    "heapq", "itertools", "math", "numbers", "numpy", "numpy.fft", "numpy.lib.stride_tricks", "numpy.linalg",
    "numpy.polynomial", "numpy.random", "numpy.typing", "operator", "random", "scipy.special", "statistics", "string",
    "typing", "__future__",
})  # fmt: skip
WORKED_EXAMPLE = "tinyvit.models.worked_example"  # its constants are handed out, for the exercise that needs them
SCIPY_FUNCTIONS = ("erf", "erfc")  # of scipy.special, which has a softmax as well

BUILTINS = frozenset({
    "__import__", "__loader__", "__spec__", "breakpoint", "compile", "delattr", "eval", "exec", "exit", "globals",
    "help", "input", "locals", "memoryview", "open", "quit", "vars", "get_ipython",
})  # fmt: skip
# Frames, files, modules that others import, and ways to read an attribute by a name made at run time.
ATTRIBUTES = frozenset({
    "_current_frames", "_getframe", "ag_frame", "cr_code", "cr_frame", "f_back", "f_builtins", "f_code", "f_globals",
    "f_locals", "gi_code", "gi_frame", "mro", "tb_frame", "tb_next",
    "DataSource", "ctypes", "ctypeslib", "dump", "dumps", "f2py", "fromfile", "fromregex", "genfromtxt", "load",
    "loadtxt", "loads", "memmap", "open_memmap", "save", "savetxt", "savez", "savez_compressed", "testing", "tofile",
    "_os", "_pickle", "_sys", "_thread", "attrgetter", "builtins", "inspect", "methodcaller", "os", "pickle", "sys",
})  # fmt: skip
DUNDERS = frozenset({
    "__add__", "__abs__", "__call__", "__doc__", "__enter__", "__eq__", "__exit__", "__float__", "__getitem__",
    "__init__", "__int__", "__iter__", "__len__", "__matmul__", "__mul__", "__name__", "__neg__", "__new__",
    "__next__", "__post_init__", "__pow__", "__repr__", "__setitem__", "__str__", "__sub__", "__truediv__",
    "__version__",
})  # fmt: skip
COMPLEX_NAMES = frozenset({
    "cdouble", "clongdouble", "cmath", "complex", "complex64", "complex128", "complex256", "csingle", "emath", "imag",
    "real",
})  # fmt: skip
COMPLEX_TEXTS = COMPLEX_NAMES | {"c8", "c16", "<c8", "<c16"}  # names of dtypes

ALLOWED_MODULES = "numpy, math, itertools, functools, collections, dataclasses, typing, operator and the like"
NO_COMPLEX = "uses complex numbers, as for a complex step; write the gradient's formula"


def may_be_read(attribute):
    """Whether a solution may use an attribute of this name: no frames, no files, no way to a class's internals."""
    return attribute not in ATTRIBUTES and (not attribute.startswith("__") or attribute in DUNDERS)


def may_be_imported(module, given=()):
    """Whether a solution may import the module; `given` names those that this exercise hands out besides."""
    return module in MODULES or module in given
