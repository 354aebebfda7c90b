"""Qwen2.5-VL's vision encoder against Transformers, which reads the folders that we write, in float64, with images of
several sizes in one call."""

import json
from dataclasses import replace

import pytest
import torch
from by_transformers import by_transformers
from layouts import assert_equal_state, under_our_names
from safetensors.numpy import load_file
from small_weights import model_of, redrawn_weights
from torch_autograd import assert_all_close, normal
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration
from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl as theirs

from tinyvit import create_model, interop, load
from tinyvit.interop.huggingface_vits import QWEN_VISION

pytestmark = pytest.mark.parity

GRIDS = (6, 10), (2, 2), (14, 4), (4, 6), (2, 18)  # patches below and beside each other
SMALL = create_model("qwen2_5_vl_vision_small", num_classes=0, device="meta").config
ENCODER = theirs.Qwen2_5_VisionTransformerPretrainedModel


@pytest.fixture
def in_float64(monkeypatch):
    """Transformers casts to float32 in four places: in the norms, the angles, the rotation and the eager softmax, which
    SDPA replaces."""

    def norm(self, x):
        return torch.nn.functional.rms_norm(x, x.shape[-1:], self.weight, self.variance_epsilon)

    def tables(self, x, position_ids):
        width = self.config.hidden_size // self.config.num_heads // 2
        angles = position_ids[..., None] * 10_000 ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)
        return self.recomposition_frequencies(angles.cos()), self.recomposition_frequencies(angles.sin())

    def rotated(q, k, cos, sin):
        return tuple(x * cos[:, None] + theirs.rotate_half(x) * sin[:, None] for x in (q, k))

    monkeypatch.setattr(theirs.Qwen2_5_VLRMSNorm, "forward", norm)
    monkeypatch.setattr(theirs.Qwen2_5_VLVisionRotaryEmbedding, "forward", tables)
    monkeypatch.setattr(theirs, "apply_rotary_pos_emb_vision", rotated)


def pixel_rows(image, frames, patch=4, merge=2):
    """The patches of an image (C, H, W) as Transformers reads them, those of each square of merge×merge together."""
    C, H, W = image.shape
    units = H // patch // merge, W // patch // merge
    pixels = image.expand(frames, C, H, W).reshape(frames, C, units[0], merge, patch, units[1], merge, patch)
    return pixels.permute(2, 5, 3, 6, 1, 0, 4, 7).reshape(-1, C * frames * patch * patch)


@pytest.mark.parametrize("frames", [1, 2])
def test_rope_halves_packed_attention_and_all_gradients_are_those_of_transformers(frames, in_float64, tmp_path):
    weights = redrawn_weights(replace(SMALL, tubelet_frames=frames))
    ours, reference = model_of(weights), by_transformers(weights, ENCODER, tmp_path / "folder").double()
    reference.set_attn_implementation("sdpa")
    images = [normal(i, (3, 4 * rows, 4 * columns)) for i, (rows, columns) in enumerate(GRIDS)]
    leaves = [torch.tensor(image, requires_grad=True) for image in images]
    grids = torch.tensor([(1, *grid) for grid in GRIDS])
    expected = reference(torch.cat([pixel_rows(leaf, frames) for leaf in leaves]), grid_thw=grids).pooler_output
    doutput = normal(9, expected.shape)
    expected.backward(torch.tensor(doutput))
    got, caches = ours.forward_parts(images, ours.parts()[:-2])
    dimages = ours.backward_parts(doutput[None], ours.parts()[:-2], caches)
    assert_all_close({"output": got[0], **dict(enumerate(dimages))},
                     {"output": expected.detach().numpy(), **{i: leaf.grad.numpy() for i, leaf in enumerate(leaves)}})
    gradients = {name: parameter.grad.numpy() for name, parameter in reference.named_parameters()}
    assert_all_close({name: parameter.grad for name, parameter in ours.named_parameters()},
                     under_our_names(QWEN_VISION, gradients, weights.config))
    assert ours.num_parameters() == sum(p.numel() for p in reference.parameters()) == 218_976 + 3072 * (frames - 1)


def test_of_a_whole_model_only_the_encoder_is_read_and_written_back_bit_for_bit(tmp_path):
    weights = redrawn_weights(SMALL, "float32")
    by_transformers(weights, ENCODER, tmp_path / "ours")
    text = dict(vocab_size=32, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2,
                num_key_value_heads=1, rope_parameters={"rope_type": "default", "mrope_section": [2, 3, 3]})
    vision = json.loads((tmp_path / "ours" / "config.json").read_text()) | {"depth": 2, "fullatt_block_indexes": [0]}
    whole = Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(vision_config=vision, text_config=text))
    whole.save_pretrained(tmp_path / "whole")
    ours = load(tmp_path / "whole")
    assert ours.config == replace(SMALL, depth=2, full_attention=(0,))
    interop.save(ours, tmp_path / "back", "huggingface")
    saved = load_file(tmp_path / "whole" / "model.safetensors").items()
    expected = {name[len("visual."):]: array for name, array in saved if name.startswith("visual.")}
    assert_equal_state(load_file(tmp_path / "back" / "model.safetensors"), expected)
