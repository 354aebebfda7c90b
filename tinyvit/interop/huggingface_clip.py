"""The layout of Hugging Face's CLIPModel: https://huggingface.co/docs/transformers."""

import re

import numpy as np

from tinyvit.data.images import RESAMPLE
from tinyvit.functional.patches import as_pair
from tinyvit.interop.fields import Number, Sides, Size, expect_agreement, expect_fields
from tinyvit.interop.huggingface import LAYOUT
from tinyvit.interop.huggingface_config import preprocessing_of, to_preprocessor
from tinyvit.interop.mappings import Mapping, register
from tinyvit.interop.names import as_side, count_blocks, expect_names, mlp_ratio, own_shapes
from tinyvit.interop.weights import Weights
from tinyvit.models.clip import ClipConfig
from tinyvit.text import short

# Our names and theirs; first those inside a block.
IN_BLOCK = {
    "norm1": ("layer_norm1",), "attn.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attn.proj": ("self_attn.out_proj",), "norm2": ("layer_norm2",), "mlp.fc1": ("mlp.fc1",), "mlp.fc2": ("mlp.fc2",),
}  # fmt: skip
OUTSIDE = {
    "logit_scale": "logit_scale",
    "visual.cls_token": "vision_model.embeddings.class_embedding",
    "visual.pos_embed": "vision_model.embeddings.position_embedding.weight",
    "visual.patch_embed.proj.weight": "vision_model.embeddings.patch_embedding.weight",
    "visual.norm_pre": "vision_model.pre_layrnorm",  # spelled like this
    "visual.norm": "vision_model.post_layernorm",
    "visual.proj": "visual_projection",
    "text.token_embed": "text_model.embeddings.token_embedding",
    "text.pos_embed": "text_model.embeddings.position_embedding.weight",
    "text.norm": "text_model.final_layer_norm",
    "text.proj": "text_projection",
}
TOWERS = {"visual": "vision_model", "text": "text_model"}
BLOCK = re.compile(r"(visual|text)\.blocks\.(\d+)\.(.+)\.(weight|bias)")
LAYERS = {ours: re.compile(rf"{theirs}\.encoder\.layers\.(\d+)\.") for ours, theirs in TOWERS.items()}
# The defaults of Transformers' CLIPVisionConfig and CLIPTextConfig, and their common ones.
COMMON = {"num_hidden_layers": 12, "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5}
DEFAULTS = {
    "vision_config": COMMON | {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12,
                               "num_channels": 3, "image_size": 224, "patch_size": 32},
    "text_config": COMMON | {"hidden_size": 512, "intermediate_size": 2048, "num_attention_heads": 8,
                             "vocab_size": 49408, "max_position_embeddings": 77},
}  # fmt: skip
FIELDS = {
    "hidden_size": Size, "intermediate_size": Size, "num_hidden_layers": Size, "num_attention_heads": Size,
    "hidden_act": str, "layer_norm_eps": Number, "num_channels": Size, "image_size": Sides, "patch_size": Sides,
    "vocab_size": Size, "max_position_embeddings": Size, "eos_token_id": int, "vocabulary": tuple[str, ...],
}  # fmt: skip
ACTIVATIONS = {"quick_gelu": "quick_gelu", "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}
LARGEST_TOKEN = 2  # what eos_token_id meant in older files: the end is the token with the largest number
# The defaults of Transformers' CLIPImageProcessor.
PREPARED = {
    "do_resize": True, "size": {"shortest_edge": 224}, "resample": RESAMPLE.index("bicubic"), "do_center_crop": True,
    "crop_size": {"height": 224, "width": 224}, "do_normalize": True,
    "image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711],
}  # fmt: skip


def read(tensors, about, preprocessor=None, *, mean=None, std=None):
    """Hugging Face's weights as ours: arrays by name, the parsed config.json and preprocessor_config.json.

    mean, std   of each channel or of all, in place of those in preprocessor_config.json

    Raises ValueError for names that are missing, unexpected or misshapen, for a config.json that contradicts the
    weights, and for towers that differ in what ours have in common.
    """
    config = config_of(about, tensors)
    own = own_shapes(config)
    expect_names(tensors, {theirs: shape for name, shape in own.items() for theirs, shape in shapes_of(name, shape)},
                 LAYOUT)  # fmt: skip
    notes = ()
    if preprocessor is None:
        notes, preprocessor = ("there is no preprocessor_config.json; images are prepared as CLIP's are",), {}
    if isinstance(preprocessor, dict):
        preprocessor = PREPARED | {name: value for name, value in preprocessor.items() if value is not None}
        if isinstance(preprocessor["size"], int):  # as older files have it
            preprocessor["size"] = {"shortest_edge": preprocessor["size"]}
    prepared, more = preprocessing_of(about, preprocessor, config, mean, std)
    state = {}
    for name, shape in own.items():
        parts = [tensors[theirs] for theirs in their_names(name)]
        state[name] = (np.concatenate(parts) if len(parts) > 1 else parts[0]).reshape(shape)
    return Weights(config, state, prepared, notes + more)


def config_of(about, tensors):
    """The ClipConfig of a config.json; ValueError for one that contradicts the weights, or that ours can't be."""
    if not isinstance(about, dict):
        raise ValueError(f"expected Hugging Face's config.json to hold an object, got {type(about).__name__}")
    expect_fields(about, dict.fromkeys(DEFAULTS, dict) | {"projection_dim": Size}, "config.json")
    said = {}
    for part, defaults in DEFAULTS.items():
        fields = about.get(part) or {}
        expect_fields(fields, FIELDS, f"{part} of config.json")
        said[part] = defaults | {name: value for name, value in fields.items() if value is not None}
        found = found_in(tensors, part)
        expect_agreement({name: said[part][name] for name in found}, found, f"{part} of config.json")
    vision, text = said.values()
    if text.get("eos_token_id", text["vocab_size"] - 1) not in (LARGEST_TOKEN, text["vocab_size"] - 1):
        raise ValueError(
            f"config.json has eos_token_id {text['eos_token_id']}; expected the last token, {text['vocab_size'] - 1}"
        )
    ratios = {part: one["intermediate_size"] / one["hidden_size"] for part, one in said.items()}
    for what, values in (("mlp_ratio", ratios), *((name, {part: one[name] for part, one in said.items()})
                         for name in ("hidden_act", "layer_norm_eps"))):  # fmt: skip
        if len(set(values.values())) > 1:
            raise ValueError(f"expected the same {what} in both towers, got {short(repr(values))}")
    activation = ACTIVATIONS.get(vision["hidden_act"])
    if activation is None:
        raise ValueError(f"config.json has hidden_act {short(repr(vision['hidden_act']))}; expected one of "
                         f"{', '.join(ACTIVATIONS)}")  # fmt: skip
    vocabulary = tuple(text.get("vocabulary", ()))
    if vocabulary and len(vocabulary) + 2 != text["vocab_size"]:
        raise ValueError(
            f"config.json has a vocabulary of {len(vocabulary)} words, and a vocab_size of {text['vocab_size']}"
        )
    return ClipConfig(
        img_size=as_side(vision["image_size"]), patch_size=as_side(vision["patch_size"]),
        in_chans=vision["num_channels"], embed_dim=vision["hidden_size"], depth=vision["num_hidden_layers"],
        num_heads=vision["num_attention_heads"], text_dim=text["hidden_size"], text_depth=text["num_hidden_layers"],
        text_heads=text["num_attention_heads"], context_length=text["max_position_embeddings"],
        vocab_size=text["vocab_size"], vocabulary=vocabulary, projection_dim=about.get("projection_dim") or 512,
        mlp_ratio=mlp_ratio(vision["intermediate_size"], vision["hidden_size"]), activation=activation,
        norm_eps=vision["layer_norm_eps"],
    )  # fmt: skip


def found_in(tensors, part):
    """The fields of a tower's configuration that the weights' shapes determine."""
    ours = "visual" if part == "vision_config" else "text"
    tower = TOWERS[ours]
    found = {"num_hidden_layers": count_blocks(tensors, LAYERS[ours])}
    fc1 = np.shape(tensors.get(f"{tower}.encoder.layers.0.mlp.fc1.weight"))
    if len(fc1) == 2:
        found |= {"intermediate_size": fc1[0], "hidden_size": fc1[1]}
    patches = np.shape(tensors.get("vision_model.embeddings.patch_embedding.weight"))
    if ours == "visual" and len(patches) == 4:
        found |= {"num_channels": patches[1], "patch_size": patches[2:]}
    for field, name in (("vocab_size", "token"), ("max_position_embeddings", "position")):
        table = np.shape(tensors.get(f"text_model.embeddings.{name}_embedding.weight"))
        if ours == "text" and len(table) == 2:
            found[field] = table[0]
    return found


def their_names(name):
    """Their name for ours, or their three for queries, keys and values."""
    block = BLOCK.fullmatch(name)
    if block:
        tower, number, part, ending = block.groups()
        return tuple(f"{TOWERS[tower]}.encoder.layers.{number}.{theirs}.{ending}" for theirs in IN_BLOCK[part])
    if name in OUTSIDE:
        return (OUTSIDE[name],)
    part, _, ending = name.rpartition(".")
    return (f"{OUTSIDE[part]}.{ending}",)


def shapes_of(name, shape):
    """(their name, its shape) of what one of our arrays is made of."""
    names = their_names(name)
    if name == "visual.cls_token":
        shape = shape[-1:]
    elif name.endswith("pos_embed"):
        shape = shape[1:]
    return [(theirs, (shape[0] // len(names), *shape[1:]) if shape else ()) for theirs in names]


def write(weights):
    """Our weights as Hugging Face's: (arrays by name, config.json, preprocessor_config.json), the last two as dicts.

    A vocabulary of words, which Transformers doesn't read, is in the field `vocabulary` of text_config. A tokenizer of
    byte pairs isn't among the weights, and isn't written.
    """
    config = weights.config
    tensors = {}
    for name, array in weights.state.items():
        shapes = shapes_of(name, array.shape)
        parts = np.split(array, len(shapes)) if len(shapes) > 1 else [array]
        tensors |= {theirs: part.reshape(shape) for (theirs, shape), part in zip(shapes, parts)}
    common = {"hidden_act": {"gelu_tanh": "gelu_pytorch_tanh"}.get(config.activation, config.activation),
              "layer_norm_eps": config.norm_eps, "projection_dim": config.projection_dim}  # fmt: skip
    vision = common | {
        "model_type": "clip_vision_model", "hidden_size": config.embed_dim, "num_hidden_layers": config.depth,
        "num_attention_heads": config.num_heads, "intermediate_size": int(config.embed_dim * config.mlp_ratio),
        "num_channels": config.in_chans, "image_size": config.img_size, "patch_size": config.patch_size,
    }  # fmt: skip
    text = common | {
        "model_type": "clip_text_model", "hidden_size": config.text_dim, "num_hidden_layers": config.text_depth,
        "num_attention_heads": config.text_heads, "intermediate_size": int(config.text_dim * config.mlp_ratio),
        "vocab_size": config.vocab_size, "max_position_embeddings": config.context_length,
        "bos_token_id": config.vocab_size - 2, "eos_token_id": config.vocab_size - 1, "pad_token_id": 0,
    } | ({"vocabulary": list(config.vocabulary)} if config.vocabulary else {})  # fmt: skip
    about = {
        "architectures": ["CLIPModel"], "model_type": "clip", "projection_dim": config.projection_dim,
        "logit_scale_init_value": float(weights.state["logit_scale"]), "vision_config": vision, "text_config": text,
        "torch_dtype": str(weights.state["logit_scale"].dtype),
    }  # fmt: skip
    for name in ("img_size", "patch_size"):
        height, width = as_pair(getattr(config, name))
        if height != width:
            raise ValueError(f"{LAYOUT} of CLIP has no place for {name} {height}×{width}, only for squares")
    preprocessor = to_preprocessor(weights)
    if preprocessor["image_processor_type"] == "BitImageProcessor":
        preprocessor["image_processor_type"] = "CLIPImageProcessor"
    # It cuts out a square by default; a stretched image is one already.
    return tensors, about, {"do_center_crop": False} | preprocessor


register(Mapping(
    "huggingface", ("clip",), "clip", r"text_model\.embeddings\.token_embedding\.weight$", read, write,
    files=("config.json", "preprocessor_config.json"), options=("mean", "std"), unread="position_ids",
))  # fmt: skip
