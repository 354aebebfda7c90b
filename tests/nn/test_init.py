import numpy as np
import pytest

from tinyvit import ViT, ViTConfig
from tinyvit.nn import init

MODEL = ViT(ViTConfig(32, 4, 3, 10, embed_dim=192, depth=2, num_heads=3, mlp_ratio=4.0, head_hidden=64), seed=1)
PARAMETERS = dict(MODEL.named_parameters())


def values(name):
    return PARAMETERS[name].data


ZEROS = """cls_token head.weight head.bias patch_embed.proj.bias norm.bias
    blocks.0.attn.qkv.bias blocks.0.attn.proj.bias pre_logits.fc.bias"""


@pytest.mark.parametrize("name", ZEROS.split())
def test_the_head_the_class_token_and_most_biases_start_at_zero(name):
    assert not values(name).any()


@pytest.mark.parametrize("name", ["norm.weight", "blocks.1.norm1.weight", "blocks.1.norm2.weight"])
def test_the_weights_of_layer_norms_start_at_one(name):
    assert (values(name) == 1).all()


@pytest.mark.parametrize(
    "name, fans", [("attn.qkv", 192 + 192), ("attn.proj", 192 + 192), ("mlp.fc1", 192 + 768), ("mlp.fc2", 192 + 768)]
)
def test_matrices_of_the_blocks_are_xavier_uniform_with_queries_keys_and_values_apart(name, fans):
    limit = (6 / fans) ** 0.5
    w = values(f"blocks.0.{name}.weight")
    assert np.abs(w).max() <= limit and np.abs(w).max() > 0.999 * limit
    assert w.std() == pytest.approx(limit / 3**0.5, rel=0.01)


@pytest.mark.parametrize(
    "name, std", [("pos_embed", 0.02), ("blocks.0.mlp.fc1.bias", 1e-6), ("blocks.1.mlp.fc2.bias", 1e-6)]
)
def test_positions_and_mlp_biases_start_normally_distributed(name, std):
    assert values(name).std() == pytest.approx(std, rel=0.1)
    assert abs(values(name).mean()) < 5 * std / values(name).size ** 0.5


@pytest.mark.parametrize("name, fan_in", [("patch_embed.proj.weight", 48), ("pre_logits.fc.weight", 192)])
def test_lecun_normal_has_variance_one_over_fan_in_after_the_cut_at_two_deviations(name, fan_in):
    w = values(name)
    assert w.std() == pytest.approx(fan_in**-0.5, rel=0.03)
    assert np.abs(w).max() <= 2 * fan_in**-0.5 / init.TRUNCATED_STD


def test_no_two_parameters_start_with_the_same_values():
    first, second = values("blocks.0.attn.qkv.weight"), values("blocks.1.attn.qkv.weight")
    assert (first != second).mean() > 0.99
