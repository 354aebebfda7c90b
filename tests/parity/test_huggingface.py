"""The whole model against Hugging Face's ViTForImageClassification with the same random weights."""

import numpy as np
import pytest
import torch
from torch_autograd import assert_all_close, normal
from torch_vit import gradients_by_hand
from transformers import ViTConfig as HuggingFaceConfig
from transformers import ViTForImageClassification

from tinyvit import ViT, ViTConfig

pytestmark = pytest.mark.parity

ONE_PATCH = ViTConfig(img_size=5, patch_size=5, in_chans=1, num_classes=2, embed_dim=6, depth=1, num_heads=1)
RECTANGLES = ViTConfig(img_size=(8, 15), patch_size=(4, 3), embed_dim=24, depth=3, num_heads=4, mlp_ratio=1.75,
                       norm_eps=1e-12)  # fmt: skip
NO_QKV_BIAS = ViTConfig(img_size=12, patch_size=4, embed_dim=24, depth=2, num_heads=6, qkv_bias=False, norm_eps=1e-5)
TANH_GELU = ViTConfig(img_size=12, patch_size=6, embed_dim=12, depth=2, num_heads=3, activation="gelu_tanh")
SHAPES = {"one_patch": ONE_PATCH, "rectangles": RECTANGLES, "no_qkv_bias": NO_QKV_BIAS, "tanh_gelu": TANH_GELU}
VIT_TINY = ViTConfig(img_size=64, patch_size=16, num_classes=100, embed_dim=192, depth=12, num_heads=3, mlp_ratio=4.0)

OUR_NAMES = {
    "vit.embeddings.cls_token": "cls_token",
    "vit.embeddings.position_embeddings": "pos_embed",
    "vit.embeddings.patch_embeddings.projection": "patch_embed.proj",
    "vit.layers": "blocks",
    "layernorm_before": "norm1",
    "layernorm_after": "norm2",
    "attention.o_proj": "attn.proj",
    "vit.layernorm": "norm",
    "classifier": "head",
}


def hugging_face_vit(config, attention, std=0.2):
    """Hugging Face's model of the same shape in float64, every parameter drawn from N(0, std²).

    `attention` is "sdpa" or "eager"; the latter takes the softmax in float32 whatever the model's dtype.
    """
    torch.manual_seed(0)
    model = ViTForImageClassification(
        HuggingFaceConfig(
            image_size=config.img_size,
            patch_size=config.patch_size,
            num_channels=config.in_chans,
            num_labels=config.num_classes,
            hidden_size=config.embed_dim,
            num_hidden_layers=config.depth,
            num_attention_heads=config.num_heads,
            intermediate_size=config.mlp_hidden,
            qkv_bias=config.qkv_bias,
            hidden_act={"gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh"}[config.activation],
            layer_norm_eps=config.norm_eps,
            attn_implementation=attention,
        )
    ).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=std)
    return model


def under_our_names(arrays):
    """Arrays under Hugging Face's names as arrays under ours: queries, keys and values in one."""
    renamed = {}
    for name, array in arrays.items():
        for theirs, ours in OUR_NAMES.items():
            name = name.replace(theirs, ours)
        renamed[name] = array
    for name in [name for name in renamed if "q_proj" in name]:
        split = [renamed.pop(name.replace("q_proj", part)) for part in ("q_proj", "k_proj", "v_proj")]
        renamed[name.replace("attention.q_proj", "attn.qkv")] = np.concatenate(split)
    return renamed


def with_weights_of(theirs, config, dtype):
    model = ViT(config, dtype=dtype)
    model.load_state_dict(under_our_names({name: p.detach().numpy() for name, p in theirs.named_parameters()}))
    return model


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_and_every_gradient_are_those_of_hugging_face(shape):
    config = SHAPES[shape]
    theirs = hugging_face_vit(config, "sdpa")
    ours = with_weights_of(theirs, config, "float64")
    images, dlogits = normal(1, (3, *ours.embed.image_shape), (3, config.num_classes))

    leaf = torch.tensor(images, requires_grad=True)
    logits = theirs(leaf).logits
    logits.backward(torch.tensor(dlogits))
    gradients = under_our_names({name: p.grad.numpy() for name, p in theirs.named_parameters()})
    expected = {"logits": logits.detach().numpy(), "images": leaf.grad.numpy()} | gradients
    assert_all_close(gradients_by_hand(ours, images, dlogits), expected)


@pytest.mark.parametrize("std", [0.02, 0.2])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_float32_logits_are_those_of_hugging_face_to_1e_5_of_the_largest(attention, std):
    theirs = hugging_face_vit(VIT_TINY, attention, std)
    ours = with_weights_of(theirs, VIT_TINY, "float32")
    images = normal(1, (16, *ours.embed.image_shape)).astype("float32")
    with torch.no_grad():
        expected = theirs.float()(torch.tensor(images)).logits.numpy()
    logits, _ = ours(images)
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
