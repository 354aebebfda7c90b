"""Each argument of timm's ViT that a config.json can hold: import and export compute what timm does."""

import inspect

import numpy as np
import pytest
import timm
import torch
from small_weights import model_of
from timm.models import save_for_hf
from timm.models.vision_transformer import VisionTransformer
from torch_autograd import normal

from tinyvit import interop

pytestmark = pytest.mark.parity

VIT = {"img_size": 12, "patch_size": 4, "embed_dim": 24, "depth": 2, "num_heads": 3, "mlp_ratio": 2.0, "num_classes": 5}
AVERAGE = {"global_pool": "avg", "fc_norm": False}
# Values of each argument, not its default; a dict changes others with it.
VALUES = {
    "img_size": (24, (8, 16)), "patch_size": (2, 6), "in_chans": (1, 4), "num_classes": (1, 7), "embed_dim": (12, 48),
    "depth": (1, 3), "num_heads": (1, 6), "mlp_ratio": (1.0, 3.0), "qkv_bias": (False,), "dynamic_img_size": (True,),
    "global_pool": (AVERAGE, "map", "avgmax"), "fc_norm": (True, False), "pos_embed": ("none",),
    "class_token": (AVERAGE | {"class_token": False},), "no_embed_class": (True, AVERAGE | {"no_embed_class": True}),
    "act_layer": ("gelu_tanh", "relu"), "norm_layer": ("layernorm", "rmsnorm"), "pool_include_prefix": (True,),
    "qk_norm": (True,), "scale_attn_norm": (True,), "scale_mlp_norm": (True,), "proj_bias": (False,),
    "init_values": (0.1, 1.0), "reg_tokens": (1, 4), "pre_norm": (True,), "final_norm": (False,),
    "embed_norm_layer": ("layernorm",), "pos_drop_rate": (0.1, 0.5), "proj_drop_rate": (0.1, 0.5),
    "attn_drop_rate": (0.1, 0.5), "drop_path_rate": (0.1, 0.5), "drop_rate": (0.1, 0.5), "patch_drop_rate": (0.1, 0.5),
    "weight_init": ("jax",), "fix_init": (True,), "dynamic_img_pad": (True,),
}  # fmt: skip
REFUSED = {
    "global_pool=map", "global_pool=avgmax", "class_token=False", "act_layer=relu", "norm_layer=rmsnorm",
    "pool_include_prefix=True", "qk_norm=True", "scale_attn_norm=True", "scale_mlp_norm=True", "proj_bias=False",
    "reg_tokens=1", "reg_tokens=4", "pre_norm=True", "final_norm=False", "embed_norm_layer=layernorm",
}  # fmt: skip
CLASSES = {"self", "embed_layer", "block_fn", "mlp_layer", "attn_layer", "device", "dtype"}  # which JSON can't hold


@pytest.mark.parametrize("name", [name for name in inspect.signature(VisionTransformer.__init__).parameters
                                  if name not in CLASSES])
@torch.no_grad()
def test_an_argument_is_read_and_written_as_timm_means_it_or_refused(name, tmp_path):
    for number, value in enumerate(VALUES[name]):
        args = VIT | (value if isinstance(value, dict) else {name: value})
        theirs = timm.create_model("vit_tiny_patch16_224", **args).double().eval()
        torch.manual_seed(1)
        for array in theirs.state_dict().values():
            array.copy_(torch.randn(array.shape) / 4)  # in float32, as timm loads them
        save_for_hf(theirs, tmp_path / f"theirs{number}", model_args=args, safe_serialization=True)
        if f"{name}={args[name]}" in REFUSED:
            with pytest.raises(ValueError, match="timm|weights|global_pool"):
                interop.load(tmp_path / f"theirs{number}")
            continue
        weights = interop.load(tmp_path / f"theirs{number}")
        both, ours = [theirs], model_of(weights)
        if name != "init_values":  # which makes a DINOv2 of it
            interop.save(weights, tmp_path / f"ours{number}", "timm")
            both.append(timm.create_model(f"local-dir:{tmp_path}/ours{number}", pretrained=True).double().eval())
        images = normal(0, (2, *ours.image_shape))
        for one in both:
            np.testing.assert_allclose(ours(images)[0], one(torch.tensor(images)).numpy(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "name", ["vit_small_patch14_dinov2", "vit_small_patch14_reg4_dinov2", "deit3_small_patch16_224"]
)
@torch.no_grad()
def test_vits_with_factors_for_their_branches_are_read(name, tmp_path):
    theirs = timm.create_model(name, depth=2, img_size=112).double().eval()
    torch.manual_seed(1)
    for array in theirs.state_dict().values():
        array.copy_(torch.randn_like(array) / 8)
    save_for_hf(theirs, tmp_path, model_args={"depth": 2, "img_size": 112}, safe_serialization=True)
    ours = model_of(interop.load(tmp_path))
    images = normal(0, (2, 3, 112, 112))
    np.testing.assert_allclose(ours(images)[0], theirs(torch.tensor(images)).numpy(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("name", "args", "read"), [
    ("resnet18", {"act_layer": "gelu"}, False), ("resnet18", {"global_pool": "max"}, False),
    ("resnetv2_50x1_bit", {"act_layer": "gelu"}, False), ("resnetv2_50x1_bit", {"global_pool": "max"}, False),
    ("swin_tiny_patch4_window7_224", {"global_pool": "max"}, False),
    ("deit_tiny_distilled_patch16_224", {"img_size": 32, "num_heads": 6}, True),
    ("deit_tiny_distilled_patch16_224", {"img_size": 32, "act_layer": "gelu_tanh"}, True),
    ("vit_base_r50_s16_224", {"img_size": 32, "num_heads": 6, "act_layer": "gelu_tanh"}, True),
], ids=str)  # fmt: skip
@torch.no_grad()
def test_arguments_of_a_model_that_is_read_by_its_name_count(name, args, read, tmp_path):
    theirs = timm.create_model(name, **args).double().eval()
    torch.manual_seed(1)
    for array in theirs.state_dict().values():
        array.copy_(torch.rand(array.shape) / 8)  # in float32
    save_for_hf(theirs, tmp_path, model_args=args, safe_serialization=True)
    if not read:
        with pytest.raises(ValueError, match="has model_args that tinyvit's .* doesn't have"):
            interop.load(tmp_path)
        return
    ours = model_of(interop.load(tmp_path))
    images = normal(0, (1, *ours.image_shape))
    np.testing.assert_allclose(ours(images)[0], theirs(torch.tensor(images)).numpy(), rtol=1e-10, atol=1e-10)
