"""Which implementation of an operation runs: the reference, a kernel in NumPy alone, or one compiled by numba.

Three levels, each of which falls back on the one before it where it has nothing of its own:

    reference   the reference implementation in `functional/`, nothing else
    numpy       kernels that need no more than NumPy (on a GPU: CuPy)
    fast        kernels that need the extra `fast`, too

`using` chooses one for a stretch of code, the environment variable TINYVIT_KERNELS for a process. Otherwise the
best that is installed is taken.
"""

import inspect
import os
import warnings
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from tinyvit.operands import LOW_PRECISION, kind

LEVELS = ("reference", "numpy", "fast")
BELOW = {"reference": (), "numpy": ("numpy",), "fast": ("fast", "numpy")}  # where kernels are looked for, in this order

_level = ContextVar("tinyvit.kernels", default=None)
_modules = {}  # (level, kind of array) -> names of modules that are still to be imported


@contextmanager
def using(level):
    """Inside `with tinyvit.kernels.using(level):` operations run at this level; None leaves everything as it is.

    Threads that tinyvit starts inherit the setting. A backward follows its cache: what a kernel's forward
    left in a cache of its own type goes back through that kernel, wherever the backward is called.

    Raises ValueError for an unknown level, and for "fast" where numba can't be used.
    """
    token = _level.set(_level.get() if level is None else usable_level(level, "kernels"))
    try:
        yield
    finally:
        _level.reset(token)


def reference():
    """Inside `with tinyvit.reference():` every operation runs its reference implementation; see `using`."""
    return using("reference")


def level():
    """The level that operations run at, here and now."""
    return _level.get() or process_level()


@cache
def process_level():
    """The level in TINYVIT_KERNELS when it was first read; else "fast" if numba is installed and works, with SciPy for
    its BLAS; else "numpy"."""
    if asked := check_environment():
        return asked
    if find_spec("numba") is None or find_spec("scipy") is None:
        return "numpy"
    if reason := why_not_fast():
        warnings.warn(f"numba is installed but can't be used, so kernels are 'numpy': {reason}", stacklevel=2)
    return "numpy" if reason else "fast"


def without_numba():
    """Whether operations run as they do only because numba isn't installed: nobody has asked for a level."""
    return not (_level.get() or os.environ.get("TINYVIT_KERNELS") or find_spec("numba"))


def check_environment():
    """The level in TINYVIT_KERNELS, or None; raises ValueError if it can't be used here."""
    asked = os.environ.get("TINYVIT_KERNELS")
    return usable_level(asked, "TINYVIT_KERNELS") if asked else None


@cache
def usable_level(name, source):
    """`name` if it is a level that can be used here; else ValueError."""
    if name not in LEVELS:
        raise ValueError(f"{source}: expected one of {', '.join(LEVELS)}, got {name!r}")
    if name == "fast" and (reason := why_not_fast()):
        raise ValueError(f"{source}: 'fast' can't be used: {reason}; pip install 'tinyvit[fast]', or take 'numpy'")
    return name


@cache
def why_not_fast():
    """Why numba can't be used, or None if it can."""
    try:
        import numba
    except ImportError as error:
        return " ".join(f"{type(error).__name__}: {error}".split())
    return "NUMBA_DISABLE_JIT is set" if numba.config.DISABLE_JIT else None


def available():
    """The levels that can be used here."""
    return LEVELS[: 3 if why_not_fast() is None else 2]


def import_on_first_use(module, level, kinds):
    """Import a module, which registers kernels of a level, when an array of one of these kinds is first used."""
    for one in kinds:
        _modules.setdefault((level, one), []).append(module)


def load(level, here):
    """Import the modules with a level's kernels for a kind of array, unless that was done."""
    for module in _modules.get((level, here), ()):
        import_module(module)  # a second thread waits here for the first
    _modules.pop((level, here), None)


class Kernels:
    """The reference implementation of a function, if there is one, and its kernels by level and by kind of array."""

    def __init__(self, reference=None):
        self.reference, self.by_kind, self.by_cache = reference, {}, {}
        self.known = {}  # (level, types and dtypes of arguments) -> what was found for them, if none was converted

    def register(self, kind, kernel, level="numpy"):
        """Add a kernel, with the function's own signature, for arrays of that kind."""
        self.by_kind[level, kind] = kernel
        self.known.clear()

    def register_cache(self, cache_type, kernel):
        """Add the kernel of a backward that goes with a cache of this type."""
        self.by_cache[cache_type] = kernel
        self.known.clear()

    def find(self, x, cache=None):
        """The kernel that goes with a cache of its own, else the best implementation for `x` at the current level."""
        if type(cache) in self.by_cache:
            return self.by_cache[type(cache)]
        here = kind(x)
        for place in BELOW[level()]:
            load(place, here)
            if (place, here) in self.by_kind:
                return self.by_kind[place, here]
        return self.reference

    def find_precise(self, x, cache=None):
        """As `find`; ValueError for low precision without a kernel: the reference would add up too few digits."""
        implementation, (library, dtype) = self.find(x, cache), kind(x)
        if dtype in LOW_PRECISION and (implementation is self.reference or library == "numpy"):
            raise ValueError(
                f"{self.reference.__name__}: no kernel for {dtype} arrays of {library} at the level {level()!r}, and "
                'the reference implementation needs at least float32; compute in float32 (x.astype("float32"), or '
                'precision="float32")'
            )
        return implementation

    def which(self, x, cache=None):
        """The name of what would run, and where it is written: "layernorm tinyvit/functional/layernorm.py:17"."""
        source = inspect.unwrap(self.find(x, cache))
        path, package = Path(source.__code__.co_filename), Path(__file__).parents[1]
        path = path.relative_to(package) if path.is_relative_to(package) else path
        return f"{source.__name__} {path.as_posix()}:{source.__code__.co_firstlineno}"
