"""A small ViT's weights that every format can write and read."""

from dataclasses import replace

from strategies import redrawn

from tinyvit import ViT, ViTConfig, interop
from tinyvit.backend import to_numpy
from tinyvit.data.preprocessing import Preprocessing
from tinyvit.interop import Weights

# What every format can store: the original's activation, and images stretched to the model's size.
CONFIG = ViTConfig(
    img_size=(8, 12), patch_size=4, num_classes=3, embed_dim=12, depth=2, num_heads=3, activation="gelu_tanh"
)
PREPARED = Preprocessing(("cat", "dog", "eel"), 3, (8, 12), (0.5, 0.4, 0.3), (0.1, 0.2, 0.3), crop=None)
PLACES = {"timm": "timm", "huggingface": "huggingface", "npz": "weights.npz"}
GIVEN = {"timm": {}, "huggingface": {}, "npz": {"img_size": (8, 12)}}  # what the format doesn't store


def write_all(root):
    """The folder `root` with the same weights in every format."""
    for form, name in PLACES.items():
        interop.save(WEIGHTS, root / name, form)
    return root


def weights_of(config=CONFIG, dtype="float32", **changes):
    """`Weights` with every number from N(0, 0.2²)."""
    classes = PREPARED.classes if config.num_classes else ()
    prepared = replace(PREPARED, classes=classes, **changes)
    state = redrawn(ViT(config, dtype=dtype)).state_dict()
    return Weights(config, {name: to_numpy(array) for name, array in state.items()}, prepared)


WEIGHTS = weights_of()
