"""The layout of Hugging Face's VivitForVideoClassification and VivitModel: that of its ViT, with filters of tubelets:
https://huggingface.co/docs/transformers."""

from dataclasses import replace

import numpy as np

from tinyvit.interop import huggingface
from tinyvit.interop.fields import Size, expect_agreement, expect_fields
from tinyvit.interop.huggingface import LAYOUT, POOLER
from tinyvit.interop.huggingface_config import config_of, preprocessing_of, to_about, to_preprocessor
from tinyvit.interop.mappings import Mapping, register
from tinyvit.interop.names import expect_names, own_shapes
from tinyvit.interop.weights import Weights
from tinyvit.models.vivit import ViViTConfig

DEFAULTS = {  # of Transformers' VivitConfig, where they aren't those of its ViTConfig
    "num_frames": 32, "tubelet_size": (2, 16, 16), "hidden_act": "gelu_fast", "layer_norm_eps": 1e-6,
}  # fmt: skip
PROJECTION = "embeddings.patch_embeddings.projection.weight"
FIELDS = {"num_frames": Size, "tubelet_size": tuple[Size, Size, Size]}
PROCESSOR_DEFAULTS = {  # of VivitImageProcessor: pixels from −1 to 1, which are then normalised
    "size": {"shortest_edge": 256}, "crop_size": {"height": 224, "width": 224}, "do_center_crop": True,
    "rescale_factor": 1 / 127.5, "offset": True,
}  # fmt: skip


def read(tensors, about, preprocessor=None, *, mean=None, std=None):
    """Hugging Face's weights as ours; the arguments are those of `huggingface.read`.

    Their `gelu_fast` is the GELU with a tanh, √(2/π) rounded to ten digits. Without a classifier the model has no
    classes, and a pooler isn't used. Raises ValueError as `huggingface.read` does.
    """
    if not isinstance(about, dict):
        raise ValueError(f"expected Hugging Face's config.json to hold an object, got {type(about).__name__}")
    expect_fields(about, FIELDS, "config.json")
    said = DEFAULTS | {name: value for name, value in about.items() if value is not None}
    frames, *patch = said["tubelet_size"]
    tensors, spellings = huggingface.as_in_transformers_4(tensors, "vivit.")
    found, projection = huggingface.found_in(tensors), np.shape(tensors.get(PROJECTION))
    if len(projection) == 5:
        found |= {"hidden_size": projection[0], "num_channels": projection[1], "patch_size": projection[3:]}
        expect_agreement({"tubelet_size": said["tubelet_size"]}, {"tubelet_size": projection[2:]}, "config.json")
    vit, notes = config_of(
        said | {"patch_size": patch}, found, has_head="classifier.weight" in tensors, has_pooler=False
    )
    config = ViViTConfig(**vars(vit), frames=said["num_frames"], tubelet_frames=frames)
    if any(name in tensors for name in POOLER):
        notes += ("the pooler isn't used",)
    tensors = {name: array for name, array in tensors.items() if name not in POOLER}
    own = own_shapes(config)
    expect_names(tensors, huggingface.shapes_in(own), LAYOUT, huggingface.spelled_as(spellings, "vivit."))
    prepared, more = preprocessing_of(about, as_of_images(preprocessor), config, mean, std)
    state = {}
    for name in own:
        parts = [tensors[theirs] for theirs in huggingface.their_names(name)]
        state[name] = np.concatenate(parts) if len(parts) > 1 else parts[0]
    return Weights(config, state, replace(prepared, frames=config.frames), notes + more)


def as_of_images(preprocessor):
    """The fields of a VivitImageProcessor as those of a ViTImageProcessor: an offset of −1 is part of the mean."""
    if not isinstance(preprocessor, dict):
        return preprocessor
    said = PROCESSOR_DEFAULTS | {name: value for name, value in preprocessor.items() if value is not None}
    if not (said["offset"] and said.get("do_rescale", True)):
        return said
    normalised = said.get("do_normalize", True)
    mean, std = (said.get(name, 0.5) if normalised else neutral for name, neutral in
                 (("image_mean", 0.0), ("image_std", 1.0)))  # fmt: skip
    shifted = (np.ravel(mean) + 1).tolist() if np.asarray(mean).dtype.kind in "if" else mean
    return said | {"do_normalize": True, "image_mean": shifted, "image_std": std}


def write(weights):
    """Our weights as Hugging Face's: (arrays by name, config.json, preprocessor_config.json), the last two as dicts.

    The names are those of Transformers 4, which Transformers 5 loads too; the GELU with a tanh is their gelu_fast.
    Stochastic depth is not written. Raises ValueError for pooling over the tubelets, which has no place there.
    """
    config = weights.config
    if config.global_pool != "token":
        raise ValueError(f"{LAYOUT} has no place for global_pool {config.global_pool!r}: it reads the class token")
    about, preprocessor = to_about(weights), to_preprocessor(weights)
    del about["patch_size"]
    about |= {
        "model_type": "vivit", "num_frames": config.frames, "tubelet_size": list(config.tubelet),
        "architectures": ["VivitForVideoClassification" if config.num_classes else "VivitModel"],
    }  # fmt: skip
    if config.activation == "gelu_tanh":
        about["hidden_act"] = "gelu_fast"
    preprocessor |= {"image_processor_type": "VivitImageProcessor", "offset": False,
                     "do_center_crop": weights.preprocessing.crop is not None}  # fmt: skip
    state = dict(weights.state)
    if config.positions == "none":
        count = int(np.prod(config.video_grid))
        state["pos_embed"] = np.zeros((1, 1 + count, config.embed_dim), state["cls_token"].dtype)
    prefix, tensors = "vivit." if config.num_classes else "", {}
    for name, array in state.items():
        names = huggingface.their_names(name)
        for theirs, part in zip(names, np.split(array, len(names)) if len(names) > 1 else [array], strict=True):
            tensors[theirs if name.startswith("head.") else prefix + theirs] = part
    return tensors, about, preprocessor


register(Mapping(
    "huggingface", ("vivit",), "vivit", r"vivit\.embeddings\.patch_embeddings\.projection\.weight$", read, write,
    files=("config.json", "preprocessor_config.json"), options=("mean", "std"),
))  # fmt: skip
