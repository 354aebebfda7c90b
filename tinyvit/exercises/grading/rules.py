"""What a graded solution may use. Imports nothing of the package: the process that runs a solution loads it, too."""

MODULES = frozenset({
    "abc", "bisect", "cmath", "collections", "collections.abc", "copy", "dataclasses", "enum", "fractions", "functools",
    "heapq", "itertools", "math", "numbers", "numpy", "numpy.fft", "numpy.lib.stride_tricks", "numpy.linalg",
    "numpy.polynomial", "numpy.random", "numpy.typing", "operator", "random", "scipy.special", "statistics", "string",
    "typing", "__future__",
})  # fmt: skip
EXAMPLE = "tinyvit.models.worked_example"  # its constants are handed out, for the exercise that needs them
OF_SCIPY = ("erf", "erfc")  # of scipy.special, which has a softmax as well

BUILTINS = frozenset({
    "__import__", "__loader__", "__spec__", "breakpoint", "compile", "delattr", "eval", "exec", "exit", "globals",
    "help", "input", "locals", "memoryview", "open", "quit", "vars", "get_ipython",
})  # fmt: skip
ATTRIBUTES = frozenset({
    "_current_frames", "_getframe", "ag_frame", "cr_code", "cr_frame", "f_back", "f_builtins", "f_code", "f_globals",
    "f_locals", "gi_code", "gi_frame", "mro", "tb_frame", "tb_next",
    "DataSource", "ctypes", "ctypeslib", "dump", "dumps", "f2py", "fromfile", "fromregex", "genfromtxt", "load",
    "loadtxt", "loads", "memmap", "open_memmap", "save", "savetxt", "savez", "savez_compressed", "testing", "tofile",
})  # fmt: skip
DUNDERS = frozenset({
    "__add__", "__abs__", "__call__", "__doc__", "__enter__", "__eq__", "__exit__", "__float__", "__getitem__",
    "__init__", "__int__", "__iter__", "__len__", "__matmul__", "__mul__", "__name__", "__neg__", "__new__",
    "__next__", "__post_init__", "__pow__", "__repr__", "__setitem__", "__str__", "__sub__", "__truediv__",
    "__version__",
})  # fmt: skip
COMPLEX = frozenset({"cdouble", "clongdouble", "complex", "complex64", "complex128", "complex256", "csingle", "imag"})
COMPLEX_TEXTS = COMPLEX | {"c8", "c16", "<c8", "<c16"}  # names of dtypes

ALLOWED = "numpy, math, itertools, functools, collections, dataclasses, typing, operator and the like"
NO_COMPLEX = "uses complex numbers, as for a complex step; write the gradient's formula"
NO_DIFFERENCES = "changes one entry after the other, as for finite differences; write the gradient's formula"


def may_be_read(attribute):
    """Whether a solution may use an attribute of this name: no frames, no files, no way to a class's internals."""
    return attribute not in ATTRIBUTES and (not attribute.startswith("__") or attribute in DUNDERS)


def may_be_imported(module, given=()):
    """Whether a solution may import the module; `given` names those that this exercise hands out besides."""
    return module in MODULES or module in given


def deed(event, subject=""):
    """What a solution did, in words, by the name of Python's audit event."""
    words = {
        "open": f"opens a file ({subject})", "os.fork": "starts a process", "os.forkpty": "starts a process",
        "subprocess.Popen": "starts a process", "os.posix_spawn": "starts a process", "os.exec": "starts a process",
        "os.system": "starts a process", "_thread.start_new_thread": "starts a thread", "time.sleep": "sleeps",
        "os.kill": "sends a signal", "os.killpg": "sends a signal", "signal.pthread_kill": "sends a signal",
    }  # fmt: skip
    families = {
        "socket": "uses the network", "ctypes": "uses ctypes", "gc": "searches the memory (gc)", "pickle": "unpickles",
        "object": "looks at frames or code", "sys": "looks at frames or code", "code": "makes code objects",
        "_thread": "starts a thread", "_posixsubprocess": "starts a process",
    }  # fmt: skip
    return words.get(event) or families.get(event.partition(".")[0]) or f"asks the system for {event}"
