"""The layout of Hugging Face's ViTForImageClassification and ViTModel: https://huggingface.co/docs/transformers.

The encoders of ViTMAEForPreTraining and ViTMAEModel have the same, and are read. Queries, keys and values are three
matrices each. Transformers 4 and 5 spell names differently; both are read. Those of Transformers 4 are written, which 5
loads too.
"""

import re

import numpy as np

from tinyvit.interop.huggingface_config import config_of, preprocessing_of, to_about, to_preprocessor
from tinyvit.interop.mappings import Mapping, register
from tinyvit.interop.names import count_blocks, expect_names, own_shapes, position_table
from tinyvit.interop.weights import Weights

LAYOUT = "Hugging Face's layout"
# Our names and theirs, without the ending weight or bias; first those inside a block.
IN_BLOCK = {
    "norm1": ("layernorm_before",),
    "attn.qkv": ("attention.attention.query", "attention.attention.key", "attention.attention.value"),
    "attn.proj": ("attention.output.dense",),
    "norm2": ("layernorm_after",),
    "mlp.fc1": ("intermediate.dense",),
    "mlp.fc2": ("output.dense",),
}
OUTSIDE = {
    "patch_embed.proj": "embeddings.patch_embeddings.projection",
    "norm": "layernorm",
    "pre_logits.fc": "pooler.dense",
    "head": "classifier",
}
TOKENS = {"cls_token": "embeddings.cls_token", "pos_embed": "embeddings.position_embeddings"}
# The parts of a layer that have another name in Transformers 5.
OF_TRANSFORMERS_5 = {
    "attention.q_proj": "attention.attention.query",
    "attention.k_proj": "attention.attention.key",
    "attention.v_proj": "attention.attention.value",
    "attention.o_proj": "attention.output.dense",
    "mlp.fc1": "intermediate.dense",
    "mlp.fc2": "output.dense",
}
BLOCK = re.compile(r"blocks\.(\d+)\.(.+)\.(weight|bias)")
LAYER = re.compile(r"(?:encoder\.layer|layers)\.(\d+)\.(.+)\.(weight|bias)")
# The arrays of ViTForMaskedImageModeling that a classifier doesn't use.
UNUSED = {"embeddings.mask_token": "the mask token", "decoder.0.weight": "the decoder of masked image modelling",
          "decoder.0.bias": "the decoder of masked image modelling"}  # fmt: skip
MASKED_AUTOENCODER = "vit_mae"
POOLER = ("pooler.dense.weight", "pooler.dense.bias")


def read(tensors, about, preprocessor=None, *, mean=None, std=None):
    """Hugging Face's weights as ours.

    tensors       arrays by the names of Transformers 4 or 5, with "vit." in front or without
    about         the parsed config.json
    preprocessor  the parsed preprocessor_config.json, or None
    mean, std     of each channel or of all, in place of those in preprocessor_config.json

    A classifier becomes the head, and a pooler beside it is not used, as in Hugging Face's model. Without a classifier
    the model has no classes; a pooler is then its hidden layer with tanh, and the output is their pooler_output. Of a
    masked autoencoder the encoder is read, and the output is that of the class token.

    Raises ValueError for names that are missing, unexpected or misshapen, and for a config.json that contradicts the
    weights.
    """
    tensors, spellings = as_in_transformers_4(tensors)
    has_head, has_pooler = "classifier.weight" in tensors, POOLER[0] in tensors
    config, notes = config_of(about, found_in(tensors), has_head=has_head, has_pooler=has_pooler)
    unused = UNUSED | (dict.fromkeys(POOLER, "the pooler") if has_pooler and config.head_hidden is None else {})
    if about.get("model_type") == MASKED_AUTOENCODER:
        unused |= dict.fromkeys((name for name in tensors if name.startswith("decoder.")), "the decoder")
    left_aside = dict.fromkeys(what for name, what in unused.items() if name in tensors)
    notes += tuple(f"{what} isn't used" for what in left_aside)
    tensors = {name: array for name, array in tensors.items() if name not in unused}
    own = own_shapes(config)
    expect_names(tensors, shapes_in(own), LAYOUT, spelled_as(spellings))
    prepared, more = preprocessing_of(about, preprocessor, config, mean, std)
    state = {}
    for name in own:
        parts = [tensors[theirs] for theirs in their_names(name)]
        state[name] = np.concatenate(parts) if len(parts) > 1 else parts[0]
    return Weights(config, state, prepared, notes + more)


def as_in_transformers_4(tensors, prefix="vit."):
    """The arrays by the names of Transformers 4 without the prefix, and how the file spells each of these names.

    Raises ValueError if an array is there under two names.
    """
    arrays, spellings = {}, {}
    for spelling, array in tensors.items():
        name = spelling.removeprefix(prefix)
        layer = LAYER.fullmatch(name)
        if layer:
            number, part, ending = layer.groups()
            name = f"encoder.layer.{number}.{OF_TRANSFORMERS_5.get(part, part)}.{ending}"
        if name in arrays:
            raise ValueError(f"{spellings[name]} and {spelling} are names of the same array; expected one of them")
        arrays[name], spellings[name] = array, spelling
    return arrays, spellings


def spelled_as(spellings, prefix="vit."):
    """A function that gives a name as a file with these spellings has it, or would have it."""
    prefix = prefix if any(spelling.startswith(prefix) for spelling in spellings.values()) else ""

    def spelled(name):
        return spellings.get(name, name if "classifier." in name else prefix + name)

    return spelled


def found_in(tensors):
    """The fields of a config.json that the weights' shapes determine."""
    found = {"num_hidden_layers": count_blocks(tensors, LAYER)}
    projection = np.shape(tensors.get("embeddings.patch_embeddings.projection.weight"))
    if len(projection) == 4:
        found |= {"hidden_size": projection[0], "num_channels": projection[1], "patch_size": projection[2:]}
    fc1 = np.shape(tensors.get("encoder.layer.0.intermediate.dense.weight"))
    if len(fc1) == 2:
        found["intermediate_size"] = fc1[0]
        found["qkv_bias"] = any(name.endswith(".attention.attention.query.bias") for name in tensors)
    for field, name in (("num_labels", "classifier.weight"), ("pooler_output_size", POOLER[0])):
        if np.ndim(tensors.get(name)) == 2:
            found[field] = len(tensors[name])
    return found


def their_names(name):
    """Their name for ours, or their three for queries, keys and values."""
    block = BLOCK.fullmatch(name)
    if block:
        number, part, ending = block.groups()
        return tuple(f"encoder.layer.{number}.{theirs}.{ending}" for theirs in IN_BLOCK[part])
    if name in TOKENS:
        return (TOKENS[name],)
    part, _, ending = name.rpartition(".")
    return (f"{OUTSIDE[part]}.{ending}",)


def shapes_in(own):
    """The shapes of their arrays by their names, from ours by ours."""
    shapes = {}
    for name, shape in own.items():
        names = their_names(name)
        shapes |= {theirs: (shape[0] // len(names), *shape[1:]) for theirs in names}
    return shapes


def write(weights):
    """Our weights as Hugging Face's: (arrays by name, config.json, preprocessor_config.json), the last two as dicts.

    The names are those of Transformers 4, which Transformers 5 loads too: of ViTForImageClassification, or of ViTModel
    for a model without classes. Positions of any kind but rotary become one table. Stochastic depth and other image
    sizes are not written.

    Raises ValueError for what Hugging Face's ViT has no place for.
    """
    config, pool = weights.config, weights.config.global_pool
    if pool != "token":
        raise ValueError(f"{LAYOUT} has no place for global_pool {pool!r}: its head reads the class token")
    if config.head_hidden is not None and config.num_classes:
        raise ValueError(f"{LAYOUT} has no place for head_hidden {config.head_hidden}: its head is one linear layer")
    about, preprocessor = to_about(weights), to_preprocessor(weights)
    state = {name: array for name, array in weights.state.items() if not name.startswith("pos_embed")}
    state["pos_embed"] = position_table(weights, LAYOUT)
    prefix = "vit." if config.num_classes else ""
    tensors = {}
    for name, array in state.items():
        names = their_names(name)
        for theirs, part in zip(names, np.split(array, len(names)) if len(names) > 1 else [array], strict=True):
            tensors[theirs if name.startswith("head.") else prefix + theirs] = part
    return tensors, about, preprocessor


register(Mapping(
    "huggingface", ("vit", MASKED_AUTOENCODER), "vit", r"(vit\.)?embeddings\.patch_embeddings\.projection\.weight$",
    read, write, files=("config.json", "preprocessor_config.json"), options=("mean", "std"),
))  # fmt: skip
