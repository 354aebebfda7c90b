"""tinyvit: a Vision Transformer written by hand in NumPy and CuPy, forward and backward.

    model = tinyvit.load("runs/digits")     # a run, a Hugging Face or timm folder, or a file with weights
    logits, cache = model(images)
    tinyvit.save(model, "runs/mine")        # a folder that `tinyvit.load` and the command line read

`import tinyvit` loads NumPy and the mathematics. What trains, reads files or draws is loaded where it is used.
"""

from importlib import import_module

from tinyvit import functional, kernels, nn
from tinyvit.functional import reference
from tinyvit.keys import Key
from tinyvit.models import ViT, ViTConfig, create_model, list_models
from tinyvit.nn import Context

__version__ = "0.1.0"

_LAZY = ("cli", "data", "exercises", "gradcheck", "interop", "models", "optim", "probe", "training")

__all__ = [
    "Context", "Key", "ViT", "ViTConfig", "create_model", "functional", "kernels", "list_models", "load", "nn",
    "reference", "save", *_LAZY,
]  # fmt: skip


def __getattr__(name):
    if name in ("load", "save"):
        return getattr(import_module("tinyvit.loading"), name)
    if name in _LAZY:
        return import_module(f"tinyvit.{name}")
    raise AttributeError(f"module 'tinyvit' has no attribute {name!r}")


def __dir__():
    return [*__all__, "__version__"]
