"""The whole model in float32 against Hugging Face's ViTForImageClassification with the same random weights.

In float64, with every gradient, it is in test_interop_huggingface.py.
"""

import numpy as np
import pytest
import torch
from layouts import under_our_names
from torch_autograd import normal
from transformers import ViTConfig as HuggingFaceConfig
from transformers import ViTForImageClassification

from tinyvit import ViT, ViTConfig
from tinyvit.interop.huggingface_vits import VIT

pytestmark = pytest.mark.parity

VIT_TINY = ViTConfig(img_size=64, patch_size=16, num_classes=100, embed_dim=192, depth=12, num_heads=3, mlp_ratio=4.0)


@pytest.mark.parametrize("std", [0.02, 0.2])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@torch.no_grad()
def test_float32_logits_are_those_of_hugging_face_to_1e_5_of_the_largest(attention, std):
    torch.manual_seed(0)
    theirs = ViTForImageClassification(HuggingFaceConfig(
        image_size=64, patch_size=16, num_labels=100, hidden_size=192, num_attention_heads=3, intermediate_size=768,
        layer_norm_eps=1e-6, attn_implementation=attention,
    ))  # fmt: skip
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=std)
    ours = ViT(VIT_TINY, dtype="float32")
    ours.load_state_dict(under_our_names(VIT, dict(theirs.named_parameters()), VIT_TINY))
    images = normal(1, (16, *ours.embed.image_shape)).astype("float32")
    expected = theirs(torch.tensor(images)).logits.numpy()
    np.testing.assert_allclose(ours(images)[0], expected, rtol=0, atol=1e-5 * np.abs(expected).max())
