"""What every format expects of `Weights` before they are written."""

from tinyvit.backend import to_numpy
from tinyvit.functional.patches import as_pair
from tinyvit.interop.names import expect_names, own_shapes
from tinyvit.interop.stored import is_finite, listed

FLOATS = ("float16", "float32", "float64")


def check_weights(weights):
    """Raises ValueError for a state or a preprocessing that doesn't fit the configuration, and for arrays of anything
    but finite floating-point numbers."""
    check_state(weights.config, weights.state)
    check_preprocessing(weights.config, weights.preprocessing)


def check_state(config, state):
    """Raises ValueError for arrays that are not those of a ViT of this configuration, or hold no real numbers."""
    expect_names(state, own_shapes(config), "tinyvit")
    other = [f"{name} ({array.dtype})" for name, array in state.items() if array.dtype.name not in FLOATS]
    if other:
        raise ValueError(f"expected floating-point numbers, got {', '.join(other)}")
    not_finite = [name for name, array in state.items() if not is_finite(to_numpy(array))]
    if not_finite:
        raise ValueError(f"there are numbers that are NaN or infinite in {listed(not_finite)}")


def check_preprocessing(config, preprocessing):
    """Raises ValueError for images or classes that are not the model's."""
    expected = {"channels": config.in_chans, "img_size": as_pair(config.img_size), "classes": config.num_classes}
    got = {name: getattr(preprocessing, name) for name in expected}
    got["classes"] = len(got["classes"])
    for name, value in expected.items():
        if got[name] != value:
            raise ValueError(f"the model has {name} {value}, and its preprocessing {got[name]}")
