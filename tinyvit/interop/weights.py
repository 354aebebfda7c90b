"""The common representation of weights: every format is read into it and written from it."""

from typing import NamedTuple

from tinyvit.backend import Array, to_numpy
from tinyvit.data.preprocessing import Preprocessing
from tinyvit.functional.patches import as_pair
from tinyvit.interop.arrays import expect_finite, listed
from tinyvit.interop.names import expect_names, own_shapes
from tinyvit.models import ViTConfig

FLOATS = ("float16", "float32", "float64")


class Weights(NamedTuple):
    """A model's weights, with what is needed to build it and to show it an image."""

    config: ViTConfig              # or the configuration of another registered architecture
    state: dict[str, Array]        # by our names, as `model.state_dict()` gives them
    preprocessing: Preprocessing   # its classes are the labels; "0", "1", … where the source has none
    notes: tuple[str, ...] = ()    # what the source doesn't say and is assumed, or has and isn't used, a sentence each


def check_weights(weights):
    """Raise ValueError for arrays that are not those of the configuration's model, or are not finite floating-point
    numbers, and for a preprocessing of other images or classes."""
    config, state, preprocessing, _ = weights
    expect_names(state, own_shapes(config), "tinyvit")
    other = [f"{name} ({array.dtype})" for name, array in state.items() if array.dtype.name not in FLOATS]
    if other:
        raise ValueError(f"expected floating-point numbers, got {listed(other)}")
    expect_finite({name: to_numpy(array) for name, array in state.items()}, "the model")
    expected = {"channels": config.in_chans, "img_size": as_pair(config.img_size), "classes": config.num_classes,
                "frames": getattr(config, "frames", None)}  # fmt: skip
    got = {name: getattr(preprocessing, name) for name in expected}
    got["classes"] = len(got["classes"])
    for name, value in expected.items():
        if got[name] != value:
            raise ValueError(f"the model has {name} {value}, and its preprocessing {got[name]}")
