"""A small ViT's weights that every format can write and read, and the weights of any model."""

from dataclasses import replace

from strategies import redrawn

from tinyvit import ViT, ViTConfig, interop
from tinyvit.data.preprocessing import Preprocessing
from tinyvit.functional.patches import as_pair
from tinyvit.interop import Weights
from tinyvit.models import build

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
    return Weights(config, redrawn(ViT(config, dtype=dtype)).state_dict(), prepared)


def weights_of_model(model):
    """The weights of any model, for images of its size; its classes are "kind 0" and so on."""
    config = model.config
    classes = tuple(f"kind {i}" for i in range(getattr(config, "num_classes", 0)))
    half = (0.5,) * config.in_chans
    prepared = Preprocessing(classes, config.in_chans, as_pair(config.img_size), half, half, crop=None,
                             frames=getattr(config, "frames", None))  # fmt: skip
    return Weights(config, model.state_dict(), prepared)


def redrawn_weights(config, dtype="float64"):
    """`weights_of_model` of one of this configuration, with every number from N(0, 0.2²)."""
    return weights_of_model(redrawn(build(config, dtype=dtype)))


def model_of(weights, dtype=None):
    """A model with these weights, in their dtype by default."""
    model = build(weights.config, dtype=dtype or next(iter(weights.state.values())).dtype.name)
    model.load_state_dict(weights.state)
    return model


WEIGHTS = weights_of()
