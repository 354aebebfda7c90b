"""Hugging Face's `config.json` and `preprocessor_config.json` of a ViT, read and written."""

from math import floor

import numpy as np

from tinyvit.data.images import RESAMPLE
from tinyvit.data.preprocessing import Preprocessing
from tinyvit.functional.patches import as_pair
from tinyvit.interop.fields import (
    LARGEST_SIDE,
    Classes,
    Number,
    Numbers,
    Sides,
    Size,
    expect_agreement,
    expect_fields,
    normalisation,
)
from tinyvit.interop.names import as_side, different_names, mlp_ratio, numbered
from tinyvit.models import ViTConfig
from tinyvit.text import short

# The defaults of Transformers' ViTConfig.
DEFAULTS = {
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
    "hidden_act": "gelu", "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "layer_norm_eps": 1e-12,
    "image_size": 224, "patch_size": 16, "num_channels": 3, "qkv_bias": True, "pooler_act": "tanh",
}  # fmt: skip
FIELDS = {
    "hidden_size": Size, "num_hidden_layers": Size, "num_attention_heads": Size, "intermediate_size": Size,
    "hidden_act": str, "hidden_dropout_prob": Number, "attention_probs_dropout_prob": Number, "layer_norm_eps": Number,
    "image_size": Sides, "patch_size": Sides, "num_channels": Size, "qkv_bias": bool, "pooler_act": str,
    "num_labels": Classes, "id2label": dict, "pooler_output_size": Size, "head_dim": int,
    "architectures": tuple[str, ...], "problem_type": str,
}  # fmt: skip
PREPROCESSOR_FIELDS = {
    "do_resize": bool, "do_rescale": bool, "do_normalize": bool, "do_center_crop": bool, "resample": int,
    "rescale_factor": Number, "image_mean": Numbers, "image_std": Numbers,
}  # fmt: skip
# Transformers has several names for the same function.
ACTIVATIONS = {"gelu": "gelu", "gelu_python": "gelu", "gelu_new": "gelu_tanh", "gelu_fast": "gelu_tanh",
               "gelu_pytorch_tanh": "gelu_tanh", "gelu_python_tanh": "gelu_tanh",
               "gelu_accurate": "gelu_tanh"}  # fmt: skip
RESCALE = 1 / 255
ONE_CLASS = "single_label_classification"
SIZED_BY_WEIGHTS = ("hidden_size", "num_hidden_layers", "intermediate_size", "num_channels", "patch_size", "qkv_bias")


def config_of(about, found, *, has_head, has_pooler):
    """The ViTConfig of a config.json, and notes on what in it isn't used.

    found                 what the weights' shapes imply, by the names of its fields
    has_head, has_pooler  whether there is a classifier, a pooler
    """
    if not isinstance(about, dict):
        raise ValueError(f"expected Hugging Face's config.json to hold an object, got {type(about).__name__}")
    expect_fields(about, FIELDS, "config.json")
    said = DEFAULTS | {name: about[name] for name in FIELDS if about.get(name) is not None}
    labels, pooled = label_count(said), has_pooler and not has_head
    compared = {name: said[name] for name in SIZED_BY_WEIGHTS if name in found}
    if "num_labels" in found:
        compared["num_labels"] = labels
    if pooled and "pooler_output_size" in found:
        compared["pooler_output_size"] = said.get("pooler_output_size")
    expect_agreement(compared, found, "config.json")
    activation = ACTIVATIONS.get(said["hidden_act"])
    if activation is None:
        got = short(repr(said["hidden_act"]))
        raise ValueError(f"config.json has hidden_act {got}; expected one of {', '.join(ACTIVATIONS)}")
    width = said["hidden_size"] // said["num_attention_heads"]
    if said.get("head_dim", width) != width:
        raise ValueError(f"config.json has heads {said['head_dim']} wide; expected hidden_size / heads, {width}")
    notes, hidden = [], None
    if pooled and said["pooler_act"] == "tanh":
        hidden = found.get("pooler_output_size", said["hidden_size"])
    elif pooled:
        notes.append(f"the pooler has the activation {short(repr(said['pooler_act']))}; only 'tanh' can be read")
    if not has_head and labels and "ViTForImageClassification" in said.get("architectures", ()):
        notes.append("config.json speaks of a classifier, but the weights have none")
    problem = said.get("problem_type", ONE_CLASS)
    if has_head and problem != ONE_CLASS:
        notes.append(
            f"config.json has problem_type {short(repr(problem))}; here an image has one class, and probabilities are "
            "those of a softmax, which add up to 1"
        )
    config = ViTConfig(
        img_size=as_side(said["image_size"]), patch_size=as_side(said["patch_size"]), in_chans=said["num_channels"],
        num_classes=found.get("num_labels", labels or 0) if has_head else 0, embed_dim=said["hidden_size"],
        depth=said["num_hidden_layers"], num_heads=said["num_attention_heads"],
        mlp_ratio=mlp_ratio(said["intermediate_size"], said["hidden_size"]), qkv_bias=said["qkv_bias"],
        head_hidden=hidden, drop_rate=said["hidden_dropout_prob"],
        attn_drop_rate=said["attention_probs_dropout_prob"], activation=activation, norm_eps=said["layer_norm_eps"],
    )  # fmt: skip
    return config, tuple(notes)


def label_count(said):
    """The number of labels in a config.json; None if it doesn't say."""
    return len(said["id2label"]) if "id2label" in said else said.get("num_labels")


def classes_of(about, num_classes):
    """The names of the classes, and notes on those that were changed.

    Without names they are LABEL_0, LABEL_1, …, as in Transformers.
    """
    labels = about.get("id2label")
    if not num_classes:
        return (), ()
    if labels is None:
        return numbered(num_classes, "LABEL_"), ()
    labels = {str(number): name for number, name in labels.items()}  # as JSON has it, or as Transformers has made of it
    names = [labels.get(str(i)) for i in range(num_classes)]
    names = [str(name) if type(name) is int else name for name in names]
    if not all(isinstance(name, str) for name in names):
        first = next(i for i, name in enumerate(names) if not isinstance(name, str))
        raise ValueError(f"config.json has no name for class {first} in id2label; expected 0 to {num_classes - 1}")
    return different_names(names)


def preprocessing_of(about, preprocessor, config, mean=None, std=None):
    """The Preprocessing of a preprocessor_config.json, and notes on what it doesn't say or can't be done here.

    Missing fields have ViTImageProcessor's defaults: mean and standard deviation 0.5, bilinear, stretched. A mean or a
    standard deviation that is given replaces the file's.
    """
    notes = ()
    if preprocessor is None:
        notes = ("there is no preprocessor_config.json; images are prepared as ViTImageProcessor does by itself",)
        preprocessor = {}
    if not isinstance(preprocessor, dict):
        raise ValueError(f"expected preprocessor_config.json to hold an object, got {type(preprocessor).__name__}")
    expect_fields(preprocessor, PREPROCESSOR_FIELDS, "preprocessor_config.json")
    preprocessor = {name: value for name, value in preprocessor.items() if value is not None}
    classes, more = classes_of(about, config.num_classes)
    mean, std = normalisation_of(preprocessor, config.in_chans, mean, std)
    number = preprocessor.get("resample", RESAMPLE.index("bilinear"))
    if number not in range(len(RESAMPLE)):
        most = len(RESAMPLE) - 1
        raise ValueError(f"preprocessor_config.json has resample {number}; expected Pillow's 0 to {most}")
    crop, why = crop_of(preprocessor, as_pair(config.img_size))
    size = as_pair(config.img_size)
    return Preprocessing(classes, config.in_chans, size, mean, std, resample=RESAMPLE[number], crop=crop), (
        *notes, *more, *why)  # fmt: skip


def normalisation_of(preprocessor, channels, mean, std):
    """Mean and standard deviation of each channel, as fractions of a fully lit pixel; given ones unchanged."""
    factor = preprocessor.get("rescale_factor", RESCALE) if preprocessor.get("do_rescale", True) else 1
    if factor <= 0:
        raise ValueError(f"preprocessor_config.json has rescale_factor {factor}; expected a number above 0")
    said = []
    for name, neutral in (("image_mean", 0.0), ("image_std", 1.0)):
        value = preprocessor.get(name, 0.5) if preprocessor.get("do_normalize", True) else neutral
        if factor != RESCALE:  # mean and std are for pixels of another scale
            value = [number / (255 * factor) for number in np.ravel(value).tolist()]
        said.append((name, value))
    return normalisation(said, (mean, std), channels, "preprocessor_config.json")


def crop_of(preprocessor, img_size):
    """The share of an image that is cut out of its middle, None to stretch all of it, and notes on what differs."""
    size, crop_size = preprocessor.get("size"), preprocessor.get("crop_size")
    if not preprocessor.get("do_resize", True):
        return None, ("images are resized, though preprocessor_config.json says that they are not",)
    if not preprocessor.get("do_center_crop", False):
        return None, differs(size, img_size)
    shortest = size.get("shortest_edge") if isinstance(size, dict) else None
    side, is_square = min(img_size), len(set(img_size)) == 1
    # Of another shape than a square, which share of an image fits depends on the image's shape, too.
    if not is_square or not isinstance(shortest, int) or not side <= shortest <= LARGEST_SIDE:
        return None, (f"images are stretched to what the model reads, not resized to {short(repr(size))} and cut out",)
    share = preprocessor.get("crop_pct")
    if not (isinstance(share, float) and 0 < share <= 1 and shortest <= side / share < shortest + 1):
        share = side / shortest
        if shortest_edge(side, share) < shortest:  # the quotient was rounded up
            share = float(np.nextafter(share, 0))
    return share, differs(crop_size, img_size)


def differs(size, img_size):
    """A note if an image processor makes images of a size that the model doesn't read."""
    pair = [size.get("height"), size.get("width")] if isinstance(size, dict) else [size, size]
    if size is None or pair == list(img_size):
        return ()
    height, width = img_size
    said = short(repr(size))
    return (f"images are made {height}×{width}, which the model reads; preprocessor_config.json says {said}",)


def shortest_edge(side, crop):
    """The length that an image's shorter side is resized to, so that a square of `side` is this share of it."""
    return floor(side / crop)


def to_about(weights):
    """The config.json of these weights, as a dict."""
    config, classes = weights.config, weights.preprocessing.classes
    about = {
        "architectures": ["ViTForImageClassification" if config.num_classes else "ViTModel"],
        "model_type": "vit",
        "hidden_size": config.embed_dim,
        "num_hidden_layers": config.depth,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.mlp_hidden,
        "hidden_act": {"gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh"}[config.activation],
        "hidden_dropout_prob": config.drop_rate,
        "attention_probs_dropout_prob": config.attn_drop_rate,
        "layer_norm_eps": config.norm_eps,
        "image_size": config.img_size,
        "patch_size": config.patch_size,
        "num_channels": config.in_chans,
        "qkv_bias": config.qkv_bias,
        "torch_dtype": str(weights.state["cls_token"].dtype),
    }
    if config.head_hidden is not None:
        about |= {"pooler_output_size": config.head_hidden, "pooler_act": "tanh"}
    if config.num_classes:
        about |= {"id2label": {str(i): name for i, name in enumerate(classes)},
                  "label2id": {name: i for i, name in enumerate(classes)}}  # fmt: skip
    return about


def to_preprocessor(weights):
    """The preprocessor_config.json of these weights, as a dict.

    ViTImageProcessor stretches images; BitImageProcessor cuts them out of the middle. Raises ValueError for
    anything else.
    """
    prepared = weights.preprocessing
    height, width = prepared.img_size
    preprocessor = {
        "image_processor_type": "ViTImageProcessor", "do_convert_rgb": prepared.channels == 3,
        "do_resize": True, "size": {"height": height, "width": width},
        "resample": RESAMPLE.index(prepared.resample),
        "do_rescale": True, "rescale_factor": RESCALE,
        "do_normalize": True, "image_mean": list(prepared.mean), "image_std": list(prepared.std),
    }  # fmt: skip
    if prepared.crop is None:
        return preprocessor
    if height != width:
        raise ValueError(
            f"Hugging Face's image processors can't cut {height}×{width} pixels out of the middle of an image; "
            "with crop null in preprocessing.json images are stretched, which they can do"
        )
    return preprocessor | {
        "image_processor_type": "BitImageProcessor", "size": {"shortest_edge": shortest_edge(height, prepared.crop)},
        "do_center_crop": True, "crop_size": {"height": height, "width": width}, "crop_pct": prepared.crop,
    }  # fmt: skip


def rounded_crop(prepared):
    """A note if an image processor cuts out another share than this Preprocessing, since it resizes to whole pixels."""
    if prepared.crop is None:
        return ()
    side = prepared.img_size[0]
    resized = shortest_edge(side, prepared.crop)
    if abs(side / prepared.crop - resized) < 1e-6:
        return ()
    return (f"Hugging Face's image processor cuts {side} pixels out of {resized}, a share of {side / resized:.3f}; "
            f"here it is {prepared.crop:.3f}, as crop_pct says in preprocessor_config.json",)  # fmt: skip
