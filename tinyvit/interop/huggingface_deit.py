"""The layout of Hugging Face's DeiTForImageClassificationWithTeacher and DeiTModel: that of its ViT, and a second token
and head: https://huggingface.co/docs/transformers."""

import numpy as np

from tinyvit.interop import huggingface
from tinyvit.interop.huggingface import LAYOUT, POOLER
from tinyvit.interop.huggingface_config import config_of, preprocessing_of, to_about, to_preprocessor
from tinyvit.interop.mappings import Mapping, register
from tinyvit.interop.names import expect_names, own_shapes, position_table
from tinyvit.interop.weights import Weights
from tinyvit.models.deit import DeiTConfig

DIST_TOKEN = "embeddings.distillation_token"
HEADS = {"head": "cls_classifier", "head_dist": "distillation_classifier"}
UNUSED = huggingface.UNUSED | dict.fromkeys(POOLER, "the pooler")


def read(tensors, about, preprocessor=None, *, mean=None, std=None):
    """Hugging Face's weights as ours; the arguments are those of `huggingface.read`.

    Without classifiers the model has no classes, and a pooler isn't used. Raises ValueError as `huggingface.read` does,
    and for a DeiT with one classifier, which ours has no place for.
    """
    tensors, spellings = huggingface.as_in_transformers_4(tensors, "deit.")
    if "classifier.weight" in tensors:
        raise ValueError(
            "the weights are those of DeiTForImageClassification, whose only head reads the class token; expected "
            "DeiTForImageClassificationWithTeacher, with cls_classifier and distillation_classifier, or DeiTModel"
        )
    has_heads = "cls_classifier.weight" in tensors
    found = huggingface.found_in(tensors)
    if has_heads and np.ndim(tensors["cls_classifier.weight"]) == 2:
        found["num_labels"] = len(tensors["cls_classifier.weight"])
    vit, notes = config_of(about, found, has_head=has_heads, has_pooler=False)
    config = DeiTConfig(**vars(vit))
    left_aside = dict.fromkeys(what for name, what in UNUSED.items() if name in tensors)
    notes += tuple(f"{what} isn't used" for what in left_aside)
    tensors = {name: array for name, array in tensors.items() if name not in UNUSED}
    own = own_shapes(config)
    expected = {}
    for name, shape in own.items():
        names = their_names(name)
        expected |= {theirs: (shape[0] // len(names), *shape[1:]) for theirs in names}
    expect_names(tensors, expected, LAYOUT, huggingface.spelled_as(spellings, "deit."))
    prepared, more = preprocessing_of(about, preprocessor, config, mean, std)
    state = {}
    for name in own:
        parts = [tensors[theirs] for theirs in their_names(name)]
        state[name] = np.concatenate(parts) if len(parts) > 1 else parts[0]
    return Weights(config, state, prepared, notes + more)


def their_names(name):
    """Their name for ours, or their three for queries, keys and values."""
    part, _, ending = name.rpartition(".")
    if name == "dist_token":
        return (DIST_TOKEN,)
    return (f"{HEADS[part]}.{ending}",) if part in HEADS else huggingface.their_names(name)


def write(weights):
    """Our weights as Hugging Face's: (arrays by name, config.json, preprocessor_config.json), the last two as dicts.

    The names are those of Transformers 4, which Transformers 5 loads too. Stochastic depth and other image sizes are
    not written. Raises ValueError for registers, for which Hugging Face's DeiT has no place, and for rotary positions.
    """
    config = weights.config
    if config.num_registers:
        raise ValueError(f"{LAYOUT} has no place for num_registers {config.num_registers}")
    about, preprocessor = to_about(weights), to_preprocessor(weights)
    name = "DeiTForImageClassificationWithTeacher" if config.num_classes else "DeiTModel"
    about |= {"model_type": "deit", "architectures": [name]}
    state = {name: array for name, array in weights.state.items() if not name.startswith("pos_embed")}
    state["pos_embed"] = position_table(weights, LAYOUT, prefix=2)
    prefix, tensors = "deit." if config.num_classes else "", {}
    for name, array in state.items():
        names = their_names(name)
        for theirs, part in zip(names, np.split(array, len(names)) if len(names) > 1 else [array], strict=True):
            tensors[theirs if name.startswith("head") else prefix + theirs] = part
    return tensors, about, preprocessor


register(Mapping(
    "huggingface", ("deit",), "deit", r"(deit\.)?embeddings\.distillation_token$", read, write,
    files=("config.json", "preprocessor_config.json"), options=("mean", "std"),
))  # fmt: skip
