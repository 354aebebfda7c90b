"""Architectures and models by name.

An architecture is one file in this package: its configuration, its class with `@register`, and its `variant`s. It is
imported when it is named, which `CLASSES` makes possible; nothing else changes.
"""

from fnmatch import fnmatchcase

from tinyvit.registry import Registry, look_up

CLASSES = {  # name of an architecture, and of its file: name of its class; its configuration's ends in Config
    "bit": "BiT", "clip": "Clip", "coatnet": "CoAtNet", "deit": "DeiT", "dinov2": "Dinov2", "dit": "DiT",
    "factorised_vivit": "FactorisedViViT", "hybrid": "Hybrid", "qwen_vision": "QwenVision", "resnet": "ResNet",
    "segmenter": "Segmenter", "swin": "Swin", "vit": "ViT", "vivit": "ViViT",
}  # fmt: skip
ARCHITECTURES = Registry("architecture", {name: f"tinyvit.models.{name}" for name in CLASSES})
VARIANTS = {}  # name of a model of an imported architecture -> (name of the architecture, fields of its configuration)

register = ARCHITECTURES.register  # @register("vit", ViTConfig)


def variant(name, architecture, **fields):
    """Give a configuration of an architecture a name that `create_model` knows."""
    VARIANTS[name] = architecture, fields


def variants(name=""):
    """(architecture, fields) of all models, by their names.

    name   of a model: architectures are imported until it is found, first those whose own name is a part of it
    """
    for architecture in sorted(CLASSES, key=lambda own: own not in str(name)):
        if name not in VARIANTS:
            ARCHITECTURES.find(architecture)
    return VARIANTS


def list_models(pattern="*"):
    """The names that `create_model` knows and that match a pattern such as "swin*", in alphabetical order."""
    return sorted(name for name in variants() if fnmatchcase(name, pattern))


def config_class(name):
    """The configuration class of an architecture; ValueError, with the nearest name, if there is none."""
    return ARCHITECTURES.find(name)[1]


def architecture_name(config_or_model):
    """The name that the architecture of a model, or of a configuration, is registered by; ValueError if it has none."""
    for name, classes in ARCHITECTURES.items():
        if type(config_or_model) in classes:
            return name
    raise ValueError(f"{type(config_or_model).__name__} is not registered as an architecture or its configuration")


def build(config, seed=0, dtype="float32", device="cpu", precision=None):
    """A model from a configuration of any registered architecture; the other arguments are as for `ViT`."""
    return ARCHITECTURES[architecture_name(config)][0](config, seed, dtype, device, precision)


def create_model(name, *, seed=0, dtype="float32", device="cpu", precision=None, **fields):
    """A model by name, as in `create_model("vit_base_patch16_224", num_classes=10)`.

    `fields` replace fields of its configuration; `seed`, `dtype`, `device` and `precision` are as for `ViT`.
    Raises ValueError for a name or a field that doesn't exist.
    """
    architecture, defaults = look_up(variants(name), name, "model")
    config = config_class(architecture)
    if "pretrained" in fields:
        raise ValueError("create_model draws weights by the seed; tinyvit.load(PATH) gives a model with trained ones")
    for field in fields:
        look_up(config.__dataclass_fields__, field, f"field of {config.__name__}")
    return build(config(**defaults | fields), seed, dtype, device, precision)
