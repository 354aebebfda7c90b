"""The implementations that are timed: tinyvit at each level of its kernels, and PyTorch."""

import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import tinyvit
from tinyvit.kernels import LEVELS

HOW_TO_INSTALL = "PyTorch is not installed; to compare with it: pip install torch"
# The variables that set the number of threads of BLAS libraries and kernels.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "NUMBA_NUM_THREADS",
           "TINYVIT_THREADS")  # fmt: skip


@dataclass(frozen=True)
class Contestant:
    """One implementation of a case, in its own process.

    work   what its worker computes: tinyvit, torch, channels_last, compile, products or torch_products
    only_convolutions   whether it is left out where there are none
    """

    name: str
    title: str
    work: str
    kernels: str = ""
    only_convolutions: bool = False

    def plays(self, case):
        return case.convolves or not self.only_convolutions

    def environment(self, threads):
        """The environment variables of its process."""
        root = str(Path(tinyvit.__file__).parents[1])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        own = {"TINYVIT_KERNELS": self.kernels, "PYTHONPATH": path, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        return os.environ | own | dict.fromkeys(THREADS, str(threads))


TINYVIT = {level: Contestant(level, f"tinyvit, {level}", "tinyvit", level) for level in LEVELS}
EAGER = Contestant("torch", "PyTorch eager", "torch")
CHANNELS_LAST = Contestant("channels_last", "PyTorch, channels last", "channels_last", only_convolutions=True)
COMPILED = Contestant("compile", "torch.compile", "compile")
PRODUCTS = Contestant("products", "matrix products, NumPy", "products")
TORCH_PRODUCTS = Contestant("torch_products", "matrix products, PyTorch", "torch_products")


def torch_is_installed():
    return find_spec("torch") is not None


def contestants(levels, torch=True, compiled=False):
    """(contestants for the cases, contestants for matrix products, {name: why it was left out})."""
    playing, products, left_out = [TINYVIT[level] for level in levels], [PRODUCTS], {}
    if torch and torch_is_installed():
        playing += [EAGER, CHANNELS_LAST]
        products.append(TORCH_PRODUCTS)
    elif torch:
        left_out["torch"] = HOW_TO_INSTALL
    if compiled and EAGER in playing:
        playing.append(COMPILED)
    elif compiled:
        left_out["compile"] = HOW_TO_INSTALL if torch else "--compile needs --torch"
    return playing, products, left_out
