import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import redrawn, vits

from tinyvit import ViT, ViTConfig, nn, optim
from tinyvit.optim import layerwise_decay

factors = st.floats(0.1, 1)
CONFIG = ViTConfig(img_size=4, patch_size=2, num_classes=3, embed_dim=8, depth=3, num_heads=2)


@given(model=vits(), factor=factors)
def test_the_head_learns_at_the_full_rate_and_each_layer_at_a_fraction_of_the_next_ones(model, factor):
    scales, depth = layerwise_decay(model, factor), model.config.depth
    assert scales == {name: p.lr_scale for name, p in model.named_parameters()}
    for name, scale in scales.items():
        part, _, rest = name.partition(".")
        if part == "blocks":
            layer = 1 + int(rest.partition(".")[0])
        else:
            layer = 0 if part in ("cls_token", "pos_embed", "pos_embed_x", "pos_embed_y", "patch_embed") else depth + 1
        assert scale == pytest.approx(factor ** (depth + 1 - layer), rel=1e-12), name
    assert scales["head.weight"] == scales["norm.bias"] == 1


@given(model=vits(), factor=factors)
def test_a_second_decay_replaces_the_first_and_a_factor_of_one_undoes_it(model, factor):
    assert layerwise_decay(model, factor) == layerwise_decay(model, factor)
    assert set(layerwise_decay(model, 1).values()) == {1.0}


@given(factor=factors)
def test_an_optimizer_made_before_it_moves_every_parameter_in_proportion(factor):
    whole, scaled = redrawn(ViT(CONFIG, dtype="float64")), redrawn(ViT(CONFIG, dtype="float64"))
    moved = []
    for model in (whole, scaled):
        optimizer, before = optim.SGD(model, 0.1), model.state_dict()
        layerwise_decay(model, factor if model is scaled else 1)
        model.storage.gradients()[:] = 1.0
        optimizer.step()
        moved.append({name: array - before[name] for name, array in model.state_dict().items()})
    for name, parameter in scaled.named_parameters():
        np.testing.assert_allclose(moved[1][name], parameter.lr_scale * moved[0][name], rtol=1e-9, err_msg=name)


@pytest.mark.parametrize("factor", [0, -0.5, 1.5, float("nan")])
def test_a_factor_outside_0_to_1_is_refused_and_changes_nothing(factor):
    model = ViT(CONFIG)
    with pytest.raises(ValueError, match=f"above 0 and at most 1, got {factor}"):
        layerwise_decay(model, factor)
    assert {p.lr_scale for p in model.parameters()} == {1.0}


def test_a_module_without_parts_is_refused():
    with pytest.raises(ValueError, match=r"needs a model with parts\(\); Linear has none"):
        layerwise_decay(nn.Linear(2, 3).materialize(), 0.5)
