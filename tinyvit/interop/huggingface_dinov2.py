"""The layout of Hugging Face's Dinov2Model and Dinov2WithRegistersModel: https://huggingface.co/docs/transformers.

Transformers 4 and 5 spell names differently; both are read, and those of Transformers 4 are written, which 5 loads too.
"""

import re

import numpy as np

from tinyvit.interop.fields import Number, Size, expect_agreement, expect_fields
from tinyvit.interop.huggingface import LAYOUT
from tinyvit.interop.huggingface_config import config_of, preprocessing_of, to_about, to_preprocessor
from tinyvit.interop.mappings import Mapping, register
from tinyvit.interop.names import count_blocks, expect_names, own_shapes, position_table
from tinyvit.interop.weights import Weights
from tinyvit.models.dinov2 import Dinov2Config

DEFAULTS = {  # of Transformers' Dinov2Config, where they aren't those of its ViTConfig
    "mlp_ratio": 4, "layer_norm_eps": 1e-6, "layerscale_value": 1.0, "use_swiglu_ffn": False, "num_register_tokens": 0,
    "hidden_size": 768, "patch_size": 16,
}  # fmt: skip
FIELDS = {"mlp_ratio": Number, "layerscale_value": Number, "use_swiglu_ffn": bool, "num_register_tokens": int,
          "hidden_size": Size}  # fmt: skip
OUTSIDE = {
    "cls_token": "embeddings.cls_token", "pos_embed": "embeddings.position_embeddings",
    "reg_token": "embeddings.register_tokens", "patch_embed.proj.": "embeddings.patch_embeddings.projection.",
    "norm.": "layernorm.",
}  # fmt: skip
IN_BLOCK = {"norm1.": "norm1.", "attn.proj.": "attention.output.dense.", "norm2.": "norm2.",
            "ls1.gamma": "layer_scale1.lambda1", "ls2.gamma": "layer_scale2.lambda1"}  # fmt: skip
MLP = {False: ("mlp.fc1.", "mlp.fc2."), True: ("mlp.weights_in.", "mlp.weights_out.")}  # True: gated
OF_TRANSFORMERS_5 = {
    ".attention.q_proj.": ".attention.attention.query.", ".attention.k_proj.": ".attention.attention.key.",
    ".attention.v_proj.": ".attention.attention.value.", ".attention.o_proj.": ".attention.output.dense.",
    ".mlp.down_proj.": ".mlp.weights_out.",
}  # fmt: skip
HALVES = ".mlp.gate_proj.", ".mlp.up_proj."  # that Transformers 4 has in one
MASK_TOKEN = "embeddings.mask_token"
LAYER = re.compile(r"encoder\.layer\.(\d+)\.")


def their_names(name, swiglu=False):
    """Their name of an array of ours, or their three for queries, keys and values."""
    block = re.fullmatch(r"blocks\.(\d+)\.(.+)", name)
    if not block:
        start = next(start for start in OUTSIDE if name.startswith(start))
        return (OUTSIDE[start] + name.removeprefix(start),)
    layer, part = f"encoder.layer.{block[1]}.", block[2]
    if part.startswith("attn.qkv."):
        return tuple(f"{layer}attention.attention.{one}.{part[9:]}" for one in ("query", "key", "value"))
    fc1, fc2 = MLP[swiglu]
    names = IN_BLOCK | {"mlp.fc1.": fc1, "mlp.fc2.": fc2}
    start = next(start for start in names if part.startswith(start))
    return (layer + names[start] + part.removeprefix(start),)


def as_in_transformers_4(tensors):
    """The arrays by the names of Transformers 4, without what stands in front of them in other models."""
    found = {}
    for name, array in tensors.items():
        name = re.sub(r"^(dinov2|dinov2_with_registers)\.", "", name)
        for new, old in OF_TRANSFORMERS_5.items():
            name = name.replace(new, old)
        if name in found:
            raise ValueError(f"{name} is there under two names; expected one of them")
        found[name] = array
    for name in [name for name in found if HALVES[0] in name]:
        other = name.replace(*HALVES)
        if other in found:
            both = np.concatenate([found.pop(name), found.pop(other)])
            found[name.replace(HALVES[0], ".mlp.weights_in.")] = both
    return found


def read(tensors, about, preprocessor=None, *, mean=None, std=None):
    """Hugging Face's weights as ours: arrays by name, the parsed config.json and preprocessor_config.json.

    mean, std   of each channel or of all, in place of those in preprocessor_config.json

    The model has no classes, and its output is their pooler_output, the class token. The mask token isn't used. Raises
    ValueError for names that are missing, unexpected or misshapen, for a config.json that contradicts the weights, and
    for Dinov2ForImageClassification, whose head reads more than the class token.
    """
    if not isinstance(about, dict):
        raise ValueError(f"expected Hugging Face's config.json to hold an object, got {type(about).__name__}")
    if any(name.startswith("classifier.") for name in tensors):
        raise ValueError(
            "the head of Dinov2ForImageClassification reads the class token and the mean of the patches side by side, "
            "which ours has no place for; expected Dinov2Model"
        )
    expect_fields(about, FIELDS, "config.json")
    said = DEFAULTS | {name: value for name, value in about.items() if value is not None}
    tensors = as_in_transformers_4({name: x for name, x in tensors.items() if 0 not in np.shape(x)})  # no registers
    found = found_in(tensors)
    compared = {"use_swiglu_ffn": found.pop("use_swiglu_ffn"), "num_register_tokens": found.pop("num_register_tokens")}
    expect_agreement({name: said[name] for name in compared}, compared, "config.json")
    swiglu, registers = compared.values()
    vit, notes = config_of(
        said | {"intermediate_size": int(said["hidden_size"] * said["mlp_ratio"])}, found, has_head=False,
        has_pooler=False,
    )  # fmt: skip
    config = Dinov2Config(**vars(vit), num_registers=registers, layer_scale=said["layerscale_value"], swiglu=swiglu)
    if tensors.pop(MASK_TOKEN, None) is not None:
        notes += ("the mask token isn't used",)
    own, expected = own_shapes(config), {}
    for name, shape in own.items():
        names = their_names(name, swiglu)
        expected |= {theirs: (shape[0] // len(names), *shape[1:]) for theirs in names}
    expect_names(tensors, expected, LAYOUT)
    prepared, more = preprocessing_of(about, preprocessor, config, mean, std)
    state = {}
    for name in own:
        parts = [tensors[theirs] for theirs in their_names(name, swiglu)]
        state[name] = np.concatenate(parts) if len(parts) > 1 else parts[0]
    return Weights(config, state, prepared, notes + more)


def found_in(tensors):
    """The fields of a config.json that the weights' shapes determine."""
    registers = np.shape(tensors.get("embeddings.register_tokens"))
    first = "encoder.layer.0."
    found = {
        "num_hidden_layers": count_blocks(tensors, LAYER),
        "use_swiglu_ffn": f"{first}mlp.weights_in.weight" in tensors,
        "num_register_tokens": registers[1] if len(registers) == 3 else 0,
        "qkv_bias": f"{first}attention.attention.query.bias" in tensors,
    }
    projection = np.shape(tensors.get("embeddings.patch_embeddings.projection.weight"))
    if len(projection) == 4:
        found |= {"hidden_size": projection[0], "num_channels": projection[1], "patch_size": projection[2:]}
    fc1 = np.shape(tensors.get(f"{first}mlp.fc1.weight"))
    return found | ({"intermediate_size": fc1[0]} if len(fc1) == 2 else {})


def write(weights):
    """Our weights as Hugging Face's: (arrays by name, config.json, preprocessor_config.json), the last two as dicts.

    The names are those of Transformers 4; a mask token, which its model has and ours hasn't, is zero. Raises ValueError
    for a model with classes or with pooling over the patches, an mlp_ratio that isn't whole, and rotary positions.
    """
    config = weights.config
    for name, only in (("num_classes", 0), ("global_pool", "token"), ("head_hidden", None)):
        if getattr(config, name) != only:
            raise ValueError(f"{LAYOUT} of DINOv2 has no place for {name} {getattr(config, name)!r}, only for {only!r}")
    if config.mlp_ratio != int(config.mlp_ratio):
        raise ValueError(f"{LAYOUT} of DINOv2 has no place for mlp_ratio {config.mlp_ratio}, only for whole numbers")
    about, preprocessor = to_about(weights), to_preprocessor(weights)
    del about["intermediate_size"]
    kind, name = ("dinov2_with_registers", "Dinov2WithRegistersModel") if config.num_registers else (
        "dinov2", "Dinov2Model")  # fmt: skip
    about |= {"model_type": kind, "architectures": [name], "mlp_ratio": int(config.mlp_ratio),
              "layerscale_value": config.layer_scale, "use_swiglu_ffn": config.swiglu}  # fmt: skip
    about |= {"num_register_tokens": config.num_registers} if config.num_registers else {}
    state = {name: array for name, array in weights.state.items() if not name.startswith("pos_embed")}
    state["pos_embed"] = position_table(weights, LAYOUT)
    tensors = {}
    for name, array in state.items():
        names = their_names(name, config.swiglu)
        tensors |= zip(names, np.split(array, len(names)) if len(names) > 1 else [array], strict=True)
    tensors[MASK_TOKEN] = np.zeros((1, config.embed_dim), state["cls_token"].dtype)
    return tensors, about, preprocessor


register(Mapping(
    "huggingface", ("dinov2", "dinov2_with_registers"), "dinov2", r".*layer_scale1\.lambda1$", read, write,
    files=("config.json", "preprocessor_config.json"), options=("mean", "std"),
))  # fmt: skip
