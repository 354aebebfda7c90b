"""The layout of Hugging Face's SwinForImageClassification and SwinModel: https://huggingface.co/docs/transformers.

Transformers 4 and 5 spell names differently; both are read, and those of Transformers 4 are written, which 5 loads too.
"""

import re

import numpy as np

from tinyvit.interop.fields import Classes, Number, Sides, Size, expect_agreement, expect_fields
from tinyvit.interop.huggingface_config import ACTIVATIONS, label_count, preprocessing_of, to_preprocessor
from tinyvit.interop.huggingface_convnets import LAYOUT, expect_only, without_prefix
from tinyvit.interop.mappings import Mapping, register
from tinyvit.interop.names import as_side, count_blocks, expect_names, own_shapes
from tinyvit.interop.weights import Weights
from tinyvit.models.swin import SwinConfig

DEFAULTS = {  # of Transformers' SwinConfig
    "image_size": 224, "patch_size": 4, "num_channels": 3, "embed_dim": 96, "depths": (2, 2, 6, 2),
    "num_heads": (3, 6, 12, 24), "window_size": 7, "mlp_ratio": 4.0, "qkv_bias": True,
    "hidden_act": "gelu", "use_absolute_embeddings": False,
    "layer_norm_eps": 1e-5, "drop_path_rate": 0.1,
}  # fmt: skip
FIELDS = {
    "image_size": Sides, "patch_size": Sides, "num_channels": Size, "embed_dim": Size, "depths": tuple[Size, ...],
    "num_heads": tuple[Size, ...], "window_size": Size, "mlp_ratio": Number, "qkv_bias": bool, "hidden_act": str,
    "use_absolute_embeddings": bool, "layer_norm_eps": Number, "drop_path_rate": Number, "num_labels": Classes,
    "id2label": dict, "architectures": tuple[str, ...],
}  # fmt: skip
INDEX = "relative_position_index"  # a table of Transformers 4 that follows from the window's size
IN_BLOCK = {  # ours and theirs of Transformers 4
    "norm1": "layernorm_before", "attn.proj": "attention.output.dense", "norm2": "layernorm_after",
    "mlp.fc1": "intermediate.dense", "mlp.fc2": "output.dense",
}  # fmt: skip
OF_TRANSFORMERS_5 = {
    "attention.q_proj": "attention.self.query", "attention.k_proj": "attention.self.key",
    "attention.v_proj": "attention.self.value", "attention.o_proj": "attention.output.dense",
    "attention.relative_position_bias.relative": "attention.self.relative",
    ".mlp.fc1": ".intermediate.dense", ".mlp.fc2": ".output.dense",
}  # fmt: skip
OUTSIDE = {
    "patch_embed.proj.": "embeddings.patch_embeddings.projection.", "patch_embed.norm.": "embeddings.norm.",
    "norm.": "layernorm.", "head.fc.": "classifier.",
}  # fmt: skip
BLOCK = re.compile(r"layers\.(\d+)\.blocks\.(\d+)\.(.+)")
MERGING = re.compile(r"layers\.(\d+)\.(downsample\..+)")


def their_names(name):
    """Their name of an array of ours without the "swin." in front, or their three for queries, keys and values."""
    if merging := MERGING.fullmatch(name):
        return (f"encoder.layers.{int(merging[1]) - 1}.{merging[2]}",)  # theirs follows a stage, ours precedes one
    if block := BLOCK.fullmatch(name):
        stage, number, part = block.groups()
        start = f"encoder.layers.{stage}.blocks.{number}."
        if part.startswith("attn.qkv."):
            return tuple(f"{start}attention.self.{one}.{part[9:]}" for one in ("query", "key", "value"))
        if part.startswith("attn.relative"):
            return (f"{start}attention.self.{part[5:]}",)
        layer, _, ending = part.rpartition(".")
        return (f"{start}{IN_BLOCK[layer]}.{ending}",)
    start = next(start for start in OUTSIDE if name.startswith(start))
    return (OUTSIDE[start] + name.removeprefix(start),)


def read(tensors, about, preprocessor=None, *, mean=None, std=None):
    """Hugging Face's weights as ours: arrays by name, the parsed config.json and preprocessor_config.json.

    mean, std   of each channel or of all, in place of those in preprocessor_config.json

    Raises ValueError for names that are missing, unexpected or misshapen, for a config.json that contradicts the
    weights, and for a Swin that ours has no place for.
    """
    if not isinstance(about, dict):
        raise ValueError(f"expected Hugging Face's config.json to hold an object, got {type(about).__name__}")
    expect_fields(about, FIELDS, "config.json")
    said = DEFAULTS | {name: about[name] for name in FIELDS if about.get(name) is not None}
    expect_only(said, hidden_act=tuple(name for name, ours in ACTIVATIONS.items() if ours == "gelu"),
                use_absolute_embeddings=(False,))  # fmt: skip
    spelled_5 = any(".q_proj." in name for name in tensors)
    tensors, prefix = without_prefix(as_in_transformers_4(tensors), "swin")
    has_head, labels = "classifier.weight" in tensors, label_count(said)
    if has_head:
        expect_agreement({"num_labels": labels}, {"num_labels": len(tensors["classifier.weight"])}, "config.json")
    stages = count_blocks(tensors, re.compile(r"encoder\.layers\.(\d+)\."))
    expect_agreement({"stages": len(said["depths"])}, {"stages": stages}, "config.json")
    config = SwinConfig(
        img_size=as_side(said["image_size"]), patch_size=as_side(said["patch_size"]), in_chans=said["num_channels"],
        num_classes=len(tensors["classifier.weight"]) if has_head else 0, embed_dim=said["embed_dim"],
        depths=tuple(said["depths"]), num_heads=tuple(said["num_heads"]), window_size=said["window_size"],
        mlp_ratio=float(said["mlp_ratio"]), qkv_bias=said["qkv_bias"], drop_path_rate=float(said["drop_path_rate"]),
        norm_eps=said["layer_norm_eps"],
    )  # fmt: skip
    own, expected = own_shapes(config), {}
    for name, shape in own.items():
        names = their_names(name)
        expected |= {theirs: (shape[0] // len(names), *shape[1:]) for theirs in names}
    expect_names(tensors, expected, LAYOUT, lambda name: prefix(as_in_transformers_5(name) if spelled_5 else name))
    prepared, notes = preprocessing_of(about, preprocessor, config, mean, std)
    if labels and not has_head and any("Classification" in name for name in said.get("architectures", ())):
        notes += ("config.json speaks of a classifier, but the weights have none",)
    state = {}
    for name in own:
        parts = [tensors[theirs] for theirs in their_names(name)]
        state[name] = np.concatenate(parts) if len(parts) > 1 else parts[0]
    return Weights(config, state, prepared, notes)


def as_in_transformers_4(tensors):
    """The arrays by the names of Transformers 4; ValueError if one is there under two names."""
    arrays = {}
    for spelling, array in tensors.items():
        name = spelling
        if ".blocks." in name:
            for new, old in OF_TRANSFORMERS_5.items():
                name = name.replace(new, old)
        if name in arrays:
            raise ValueError(f"{name} and {spelling} are names of the same array; expected one of them")
        arrays[name] = array
    return arrays


def as_in_transformers_5(name):
    """A name of Transformers 4 as Transformers 5 spells it."""
    if ".blocks." in name:
        for new, old in OF_TRANSFORMERS_5.items():
            if old != ".output.dense" or "attention" not in name:
                name = name.replace(old, new)
    return name


def write(weights):
    """Our weights as Hugging Face's: (arrays by name, config.json, preprocessor_config.json), the last two as dicts.

    Raises ValueError for windows that are smaller in some stages, for which Hugging Face's Swin has no place.
    """
    config, classes = weights.config, weights.preprocessing.classes
    smaller = [i for i in range(len(config.depths)) if min(config.grid(i)) < config.window_size]
    if smaller:
        rows, columns = config.grid(smaller[0])
        raise ValueError(f"{LAYOUT} has no place for a grid of {rows}×{columns} tokens in stage {smaller[0]}, which is "
                         f"smaller than a window of {config.window_size}×{config.window_size}")  # fmt: skip
    about = {
        "architectures": ["SwinForImageClassification" if config.num_classes else "SwinModel"], "model_type": "swin",
        "image_size": config.img_size, "patch_size": config.patch_size, "num_channels": config.in_chans,
        "embed_dim": config.embed_dim, "hidden_size": config.out_chans, "depths": list(config.depths),
        "num_heads": list(config.num_heads), "window_size": config.window_size, "mlp_ratio": config.mlp_ratio,
        "qkv_bias": config.qkv_bias, "hidden_act": "gelu", "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0, "use_absolute_embeddings": False, "layer_norm_eps": config.norm_eps,
        "drop_path_rate": config.drop_path_rate, "torch_dtype": str(weights.state["norm.weight"].dtype),
    }  # fmt: skip
    if config.num_classes:
        about |= {"id2label": {str(i): name for i, name in enumerate(classes)},
                  "label2id": {name: i for i, name in enumerate(classes)}}  # fmt: skip
    prefix, tensors = "swin." if config.num_classes else "", {}
    for name, array in weights.state.items():
        names = their_names(name)
        for theirs, part in zip(names, np.split(array, len(names)) if len(names) > 1 else [array], strict=True):
            tensors[theirs if theirs.startswith("classifier.") else prefix + theirs] = part
    return tensors, about, to_preprocessor(weights)


register(Mapping(
    "huggingface", ("swin",), "swin", r"(swin\.)?encoder\.layers\.0\.blocks\.", read, write,
    files=("config.json", "preprocessor_config.json"), options=("mean", "std"), unread=INDEX,
))  # fmt: skip
