"""Reads and writes Hugging Face's folders, each architecture by its `Layout`: https://huggingface.co/docs/transformers.

Transformers 4 and 5 spell names differently; both are read. Those of Transformers 4 are written, which 5 loads too.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tinyvit.interop import names
from tinyvit.interop.fields import Classes, Number, Sides, Size, check_fields
from tinyvit.interop.huggingface_config import preprocessing_of, processed_size, processor_fields, read_processor
from tinyvit.interop.mappings import Mapping, Weights, register
from tinyvit.interop.names import as_side, class_names, equal_parts, to_ours, to_theirs, with_position_table
from tinyvit.text import shorten
from tinyvit.validation import Count

LAYOUT = "Hugging Face's layout"
ONE_CLASS = "single_label_classification"
# Annotations of fields in config.json, of the others by their defaults.
FIELDS = {
    "id2label": dict, "num_labels": Classes, "problem_type": str,
    "image_size": Sides, "patch_size": Sides, "pooler_output_size": Size, "num_register_tokens": Count,
    "global_padding": str, "vocabulary": tuple[str, ...], "eos_token_id": int,
    "fullatt_block_indexes": tuple[Count, ...],
}  # fmt: skip
FIELDS_BY_TYPE = {int: Size, float: Number, bool: bool, str: str, tuple: tuple[Size, ...], dict: dict}
# Arrays that only training uses, by a pattern of their names.
UNUSED = {r"embeddings\.mask_token$": "the mask token", r"decoder\.": "the decoder", r"pooler\.dense\.": "the pooler"}
# Transformers has several names for the same function; the first one is written.
ACTIVATIONS = {
    "gelu": "gelu", "gelu_python": "gelu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh", "gelu_python_tanh": "gelu_tanh", "gelu_accurate": "gelu_tanh", "quick_gelu": "quick_gelu",
}  # fmt: skip
TO_ACTIVATION = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}


@dataclass(frozen=True)
class Layout:
    """How Hugging Face lays out one architecture.

    model_types       names of it in config.json, as model_type; the first is written, and is the prefix of names
    architecture      our registered name of it
    defaults          of the fields of config.json, as in Transformers
    shared_fields     their names of the fields that ours has, too, by our names
    names             (our name, configuration) -> names of the arrays of theirs that ours concatenates
    to_config         (the shared fields by our names, all fields of config.json with num_classes and made_size, the
                      size of images, arrays by name) -> our configuration; ValueError for what ours has no place for
    to_fields         our configuration -> the other fields of config.json; ValueError for what theirs has no place for
    model             prefix of Transformers' class names, followed by Model, or by `task` if there are classes
    spellings         patterns of names in Transformers 5, and the names in Transformers 4
    processor         defaults of its image processor, where they aren't ViTImageProcessor's
    prepare           the fields of preprocessor_config.json -> those of a ViTImageProcessor that does the same
    processor_fields  our configuration -> what is written into preprocessor_config.json where it differs from
                      ViTImageProcessor's
    zero_shapes       our configuration -> shapes of arrays that are written as zeros
    shape             (our name, its shape) -> the shape of theirs, concatenated
    joins_gates       whether the first two matrices of a gated MLP, apart in Transformers 5, are one in ours
    part              pattern of what names begin with where a folder holds a larger model, of which this is the part
                      that `vision_config` in config.json describes
    """

    model_types: tuple[str, ...]
    architecture: str
    defaults: dict[str, Any]
    shared_fields: dict[str, str]
    names: Callable
    to_config: Callable
    to_fields: Callable
    model: str
    task: str = "ForImageClassification"
    spellings: dict[str, str] = field(default_factory=dict)
    processor: dict[str, Any] = field(default_factory=dict)
    prepare: Callable = dict
    processor_fields: Callable = lambda config: {}
    zero_shapes: Callable = lambda config: {}
    shape: Callable = lambda name, shape: shape
    joins_gates: bool = False
    part: str = ""

    def parts(self, config):
        """For `to_ours`: names and shapes of theirs."""
        equal = equal_parts(lambda name: self.names(name, config))
        return lambda name, shape: equal(name, self.shape(name, shape))


def read(layout, tensors, about, preprocessor=None, *, mean=None, std=None):
    """Hugging Face's weights as ours.

    tensors       arrays by the names of Transformers 4 or 5, with "vit." in front or without
    about         the parsed config.json
    preprocessor  the parsed preprocessor_config.json, or None
    mean, std     of each channel or of all, in place of those in preprocessor_config.json

    A classifier becomes the head; without one the model has no classes. Raises ValueError for names that are missing,
    unexpected or misshapen for the model that config.json describes, and for one that ours has no place for.
    """
    about = about.get("vision_config", about) if layout.part else about
    said = layout.defaults | check_fields(about, field_types(layout.defaults), "config.json")
    processor, notes = read_processor(layout, preprocessor)
    tensors, spelled = rename_to_transformers_4(layout, tensors)
    head = next((x for name, x in tensors.items() if re.fullmatch(r"(cls_)?classifier(\.1)?\.weight", name)), None)
    labels = len(said["id2label"]) if "id2label" in said else said.get("num_labels")
    said |= {"num_classes": 0 if head is None else len(head) if labels is None else labels,
             "made_size": processed_size(processor)}  # fmt: skip
    fields = {ours: as_side(said[theirs]) if ours in ("img_size", "patch_size") else said[theirs]
              for ours, theirs in layout.shared_fields.items()}  # fmt: skip
    try:
        config = layout.to_config(fields, said, tensors)
    except ValueError as error:
        raise ValueError(f"config.json can't be read: {error}") from error
    if head is not None and said.get("problem_type", ONE_CLASS) != ONE_CLASS:
        notes += (f"config.json has problem_type {shorten(repr(said['problem_type']))}; here an image has one class, "
                  "and probabilities are those of a softmax, which add up to 1",)  # fmt: skip
    unused = {name: what for name in tensors for pattern, what in UNUSED.items() if re.match(pattern, name)
              and not (what == "the pooler" and getattr(config, "head_hidden", None))}  # fmt: skip
    notes += tuple(f"{what} isn't used" for what in dict.fromkeys(unused.values()))
    used = {name: array for name, array in tensors.items() if name not in unused}
    state = to_ours(used, config, layout.parts(config), f"{LAYOUT}, with the shape that config.json says", spelled)
    classes = class_names(said.get("id2label"), said["num_classes"], "config.json", "LABEL_")
    prepared, more = preprocessing_of(classes, processor, config, mean, std)
    return Weights(config, state, prepared, notes + more)


def field_types(defaults):
    """The annotations of fields with these defaults, and of those that have none."""
    return {name: FIELDS_BY_TYPE.get(type(default)) for name, default in defaults.items()} | FIELDS


def rename_to_transformers_4(layout, tensors):
    """The arrays by the names of Transformers 4 with nothing in front, and a function that gives the file's own name.

    Arrays without numbers, as of registers that a DINOv2 hasn't, are left out; halves of its MLP that Transformers 5
    has apart become one.
    """
    arrays, spellings, prefix = {}, {}, f"{layout.model_types[0]}."
    for spelling, array in tensors.items():
        name = re.sub(rf"^({'|'.join(layout.model_types)})\.", "", spelling)
        for new, old in layout.spellings.items():
            name = re.sub(new, old, name)
        if array.size:
            arrays[name], spellings[name] = array, spelling
    for gate, up in [(name, name.replace(".gate_proj.", ".up_proj.")) for name in arrays if ".gate_proj." in name]:
        if layout.joins_gates and up in arrays:
            arrays[gate.replace(".gate_proj.", ".weights_in.")] = np.concatenate([arrays.pop(gate), arrays.pop(up)])
    prefix = prefix if any(spelling.startswith(prefix) for spelling in tensors) else ""
    return arrays, lambda name: spellings.get(name, name if "classifier." in name else prefix + name)


def write(layout, weights):
    """Our weights as Hugging Face's: (arrays by name, config.json, preprocessor_config.json), the last two as dicts.

    Positions of any kind but rotary become one table. Stochastic depth and other image sizes are mostly not written.
    Raises ValueError for what Hugging Face's model has no place for.
    """
    config, classes, state = weights.config, weights.preprocessing.classes, weights.state
    dtype = next(iter(state.values())).dtype
    about = {"model_type": layout.model_types[0], "torch_dtype": str(dtype),
             "architectures": [layout.model + (layout.task if config.num_classes else "Model")],
             **{theirs: getattr(config, ours) for ours, theirs in layout.shared_fields.items()}}  # fmt: skip
    about |= layout.to_fields(config)
    if config.num_classes:
        about |= {"id2label": {str(i): name for i, name in enumerate(classes)},
                  "label2id": {name: i for i, name in enumerate(classes)}}  # fmt: skip
    if hasattr(config, "positions"):
        state = with_position_table(weights, LAYOUT)
    prefix, tensors = f"{layout.model_types[0]}." if config.num_classes else "", {}
    for name, array in to_theirs(state, layout.parts(config)).items():
        theirs = name if "classifier." in name else prefix + name
        tensors[theirs] = array
        if theirs.endswith(".running_var"):  # which PyTorch's batch norm doesn't use where there is a momentum
            tensors[theirs.replace("running_var", "num_batches_tracked")] = np.zeros((), "int64")
    tensors |= {name: np.zeros(shape, dtype) for name, shape in layout.zero_shapes(config).items()}
    return tensors, about, processor_fields(weights) | layout.processor_fields(config)


def register_layout(layout):
    """Make a `Layout` known."""
    register(Mapping(
        "huggingface", layout.model_types, layout.architecture, partial(read, layout), partial(write, layout),
        files=("config.json", "preprocessor_config.json"), options=("mean", "std"), part=layout.part,
    ))  # fmt: skip


def expect_only(said, **known):
    """Raise ValueError for a field of config.json with a value that ours has no place for."""
    for name, values in known.items():
        if said[name] not in values:
            raise ValueError(f"{name} is {shorten(repr(said[name]))}; expected {' or '.join(map(repr, values))}")


def read_activation(said):
    """Our name of an activation; ValueError for one that ours doesn't have."""
    expect_only(said, hidden_act=tuple(ACTIVATIONS))
    return ACTIVATIONS[said["hidden_act"]]


expect_place = partial(names.expect_place, LAYOUT)
write_activation = partial(names.activation_name, LAYOUT, TO_ACTIVATION)
