"""Each field of the configurations of Transformers that are read: import and export compute what Transformers does."""

import json

import numpy as np
import pytest
import torch
import transformers
from small_weights import model_of
from torch_autograd import normal
from transformers.utils import logging

from tinyvit import interop

pytestmark = pytest.mark.parity
logging.disable_progress_bar()

VIT = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40, "image_size": 12,
       "patch_size": 4}  # fmt: skip
DINO = {name: value for name, value in VIT.items() if name != "intermediate_size"}
STAGES = {"embedding_size": 8, "hidden_sizes": [32, 64], "depths": [1, 2]}
MODELS = {
    "ViTForImageClassification": VIT,
    "ViTMAEModel": VIT,
    "DeiTForImageClassificationWithTeacher": VIT,
    "SwinForImageClassification": {"image_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [2, 2],
                                   "num_heads": [1, 2], "window_size": 4, "mlp_ratio": 2.0},
    "Dinov2Model": DINO,
    "Dinov2WithRegistersModel": DINO,
    "ResNetForImageClassification": STAGES,
    "BitForImageClassification": STAGES | {"num_groups": 4},
    "VivitForVideoClassification": VIT | {"num_frames": 4, "tubelet_size": [2, 4, 4]},
    "CLIPModel": VIT | {"vocab_size": 12, "eos_token_id": 11, "max_position_embeddings": 8, "projection_dim": 10},
}  # fmt: skip
# Values of each field, not its default; a dict changes others with it.
VALUES = {
    "hidden_size": (12, 48), "num_hidden_layers": (1, 3), "num_attention_heads": (1, 6), "intermediate_size": (24, 36),
    "hidden_act": ("gelu_new", "relu"), "hidden_dropout_prob": (0.1, 0.5), "attention_probs_dropout_prob": (0.1, 0.5),
    "attention_dropout": (0.1, 0.5), "layer_norm_eps": (1e-2, 1.0), "image_size": (24, 48), "patch_size": (1, 2),
    "num_channels": (1, 4), "qkv_bias": (False,), "embed_dim": (12, 16), "depths": ([1, 1], [3, 1]),
    "num_heads": ([2, 2], [4, 8]), "window_size": (2, 8), "mlp_ratio": (1, 3), "use_absolute_embeddings": (True,),
    "drop_path_rate": (0.2, 0.5), "layerscale_value": (0.1, 2.0), "use_swiglu_ffn": (True,), "num_groups": (2, 8),
    "num_register_tokens": (0, 1), "hidden_sizes": ([16, 32], {"hidden_sizes": [64, 128], "embedding_size": 16}),
    "embedding_size": (4, {"hidden_sizes": [64, 128], "embedding_size": 16}),
    "layer_type": ("basic", {"layer_type": "basic", "hidden_sizes": [8, 16]}),
    "ResNetForImageClassification.hidden_act": ("gelu_new",), "BitForImageClassification.hidden_act": ("gelu_new",),
    "BitForImageClassification.layer_type": (
        "bottleneck", {"layer_type": "bottleneck", "global_padding": "same", "embedding_dynamic_padding": True}),
    "downsample_in_first_stage": (True,), "downsample_in_bottleneck": (True,), "output_stride": (8, 16),
    "global_padding": ("same", {"global_padding": "same", "embedding_dynamic_padding": True}),
    "embedding_dynamic_padding": (True,), "width_factor": (2, 3), "num_frames": (2, 6),
    "tubelet_size": ([1, 4, 4], [2, 3, 2]), "vocab_size": ({"vocab_size": 14, "eos_token_id": 13},),
    "eos_token_id": (2, 3), "max_position_embeddings": (9, 12), "projection_dim": (6, 20),
}  # fmt: skip
# These change nothing of what is compared: how weights are drawn, poolers, decoders, what a backbone gives, losses.
WITHOUT_EFFECT = {
    "initializer_range", "initializer_factor", "encoder_stride", "pooler_output_size", "pooler_act", "num_layers",
    "stage_names", "out_features", "out_indices", "apply_layernorm", "reshape_hidden_states", "use_mask_token",
    "decoder_num_attention_heads", "decoder_hidden_size", "decoder_num_hidden_layers", "decoder_intermediate_size",
    "mask_ratio", "norm_pix_loss", "pad_token_id", "bos_token_id",
}  # fmt: skip
# What ours has no place for; all else is read and written.
REFUSED = {
    "hidden_act=relu", "use_absolute_embeddings=True", "layer_type=basic", "layer_type=bottleneck", "eos_token_id=3",
    "global_padding=same", "embedding_dynamic_padding=True", "output_stride=8", "output_stride=16", "width_factor=2",
    "width_factor=3", "downsample_in_first_stage=True", "downsample_in_bottleneck=True", "embedding_size=4",
    "hidden_sizes=[16, 32]", "SwinForImageClassification.hidden_act=gelu_new",
    "ResNetForImageClassification.hidden_act=gelu_new", "BitForImageClassification.hidden_act=gelu_new",
}  # fmt: skip


def own_fields(config):
    """The fields of a configuration that not every one has, those of CLIP's two towers together."""
    fields = set(config.to_dict()) - set(transformers.PretrainedConfig().to_dict()) - WITHOUT_EFFECT
    towers = [getattr(config, name) for name in fields if name in ("text_config", "vision_config")]
    return set().union(*map(own_fields, towers)) if towers else fields


CASES = [(model, field) for model in MODELS for field in sorted(own_fields(getattr(transformers, model).config_class()))
         if (model, field) != ("SwinForImageClassification", "hidden_size")]  # which follows from others


def theirs_of(model, fields):
    """Transformers' model in float64 with every number drawn anew."""
    kind = getattr(transformers, model)
    if model == "CLIPModel":
        fields = {"text_config": fields, "vision_config": fields, "projection_dim": fields["projection_dim"]}
    theirs = kind(kind.config_class(**fields)).double().eval()
    torch.manual_seed(1)
    for name, array in theirs.state_dict().items():
        if array.is_floating_point():
            array.copy_(torch.rand_like(array) + 0.5 if "var" in name else torch.randn_like(array) / 4)
    return theirs


def results(theirs, ours):
    """The results of both models for the same images and texts."""
    images = normal(0, (2, *ours.image_shape))
    given = {"pixel_values": torch.tensor(images)}
    if theirs.config.model_type == "clip":
        last = theirs.config.text_config.vocab_size - 1
        given["input_ids"] = torch.tensor([[last - 1, 1, 2, last], [last - 1, 3, last, 0]])
        return theirs(**given).logits_per_image, ours.compare(images, given["input_ids"].numpy())[0]
    if theirs.config.model_type == "vit_mae":
        theirs.config.mask_ratio = 0.0  # and patches stay in their order
        given["noise"] = torch.arange(theirs.embeddings.patch_embeddings.num_patches).expand(2, -1)
    if theirs.config.model_type == "vivit":
        given["pixel_values"] = given["pixel_values"].transpose(1, 2)
    found = theirs(**given)
    return found.logits if hasattr(found, "logits") else found.last_hidden_state[:, 0], ours(images)[0]


@pytest.mark.parametrize(("model", "field"), CASES, ids=map("-".join, CASES))
@torch.no_grad()
def test_a_field_is_read_and_written_as_transformers_means_it_or_refused(model, field, tmp_path):
    for number, value in enumerate(VALUES.get(f"{model}.{field}") or VALUES[field]):
        theirs = theirs_of(model, MODELS[model] | (value if isinstance(value, dict) else {field: value}))
        theirs.save_pretrained(tmp_path / f"theirs{number}")
        if {f"{field}={value}", f"{model}.{field}={value}"} & REFUSED:
            with pytest.raises(ValueError, match=f"config.json|{field}"):
                interop.load(tmp_path / f"theirs{number}", mean=0.5, std=0.5)
            continue
        weights = interop.load(tmp_path / f"theirs{number}", mean=0.5, std=0.5)
        interop.save(weights, tmp_path / f"ours{number}", "huggingface")
        (kind,) = json.loads((tmp_path / f"ours{number}" / "config.json").read_text())["architectures"]
        again = getattr(transformers, kind).from_pretrained(tmp_path / f"ours{number}").double().eval()
        for one in (theirs, again):
            expected, got = results(one, model_of(weights))
            np.testing.assert_allclose(got, expected.numpy(), rtol=1e-10, atol=1e-10)
