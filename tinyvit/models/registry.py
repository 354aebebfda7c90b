"""Architectures and models by name.

An architecture is one file in this package: its configuration, its class with `@register`, and its `variant`s. It is
imported in `models/__init__.py`, and nothing else changes.
"""

from difflib import get_close_matches

ARCHITECTURES = {}  # name -> (class, class of its configuration)
VARIANTS = {}       # name of a model -> (name of its architecture, fields of its configuration)


def register(name, config):
    """Make a class known as an architecture: `@register("vit", ViTConfig)`."""

    def decorate(architecture):
        if name in ARCHITECTURES:
            raise ValueError(f"the architecture {name!r} is registered already, by {ARCHITECTURES[name][0].__name__}")
        ARCHITECTURES[name] = architecture, config
        return architecture

    return decorate


def variant(name, architecture, **fields):
    """Give a configuration of an architecture a name that `create_model` knows."""
    VARIANTS[name] = architecture, fields


def model_names():
    """The names that `create_model` knows."""
    return list(VARIANTS)


def config_class(name):
    """The configuration class of an architecture; ValueError, with the nearest name, if there is none."""
    return looked_up(ARCHITECTURES, name, "architecture")[1]


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
    architecture, defaults = looked_up(VARIANTS, name, "model")
    config = config_class(architecture)
    unknown = [field for field in fields if field not in config.__dataclass_fields__]
    if unknown:
        known = ", ".join(config.__dataclass_fields__)
        raise ValueError(f"unknown field {', '.join(unknown)} of {config.__name__}; expected some of {known}")
    return build(config(**defaults | fields), seed, dtype, device, precision)


def looked_up(table, name, kind):
    """The entry of this name; ValueError, with the nearest name or all of them, if there is none."""
    if name in table:
        return table[name]
    close = get_close_matches(str(name), table, n=1)
    hint = f"did you mean {close[0]}?" if close else f"expected one of {', '.join(table)}"
    hint = "the TinyViT of Wu et al. 2022 is another network, which isn't here" if "tiny_vit" in str(name) else hint
    raise ValueError(f"unknown {kind} {name!r}; {hint}")
