from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import redrawn, vits

from tinyvit import ViT, ViTConfig, nn, optim
from tinyvit.functional.muon import orthogonalise
from tinyvit.models import HybridConfig, build
from tinyvit.models.resnet import ResNetConfig
from tinyvit.optim import muon
from tinyvit.optim.muon import hidden_matrices

CONFIG = ViTConfig(img_size=4, patch_size=2, in_chans=1, num_classes=3, embed_dim=8, depth=2, num_heads=2)
HIDDEN = [f"blocks.{i}.{part}.weight" for i in (0, 1) for part in ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2")]


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


def small_model(seed=0, **options):
    return redrawn(ViT(CONFIG, **{"dtype": "float64"} | options), seed)


def take_steps(model, optimizer, steps, scale=1.0, first=0):
    for step in range(first, first + steps):
        for i, parameter in enumerate(model.parameters()):
            parameter.grad = scale * normal((step, i), *parameter.shape)
        optimizer.step()


# -- which parameters -----------------------------------------------------------------------------------------------


@given(model=vits())
def test_the_hidden_matrices_of_a_vit_are_the_weights_of_its_blocks(model):
    names = {p.name for p in hidden_matrices(model)}
    assert names == {name for name, p in model.named_parameters() if name.startswith("blocks.") and p.ndim == 2}
    assert len(names) == 4 * model.config.depth


def test_layers_of_another_architecture_are_found_by_their_numbers():
    class Table(nn.Module):
        def __init__(self):
            self.bias_table = nn.Parameter((3, 3), nn.init.zeros, decay=False)
            self.gate = nn.Linear(3, 3)

    class Tower(nn.Module):
        def __init__(self):
            self.stem, self.stages = nn.Linear(3, 3), [nn.Mlp(3, 5), Table()]

    names = [p.name for p in hidden_matrices(Tower().materialize())]
    assert names == ["stages.0.fc1.weight", "stages.0.fc2.weight", "stages.1.gate.weight"]


def test_what_reads_feature_maps_is_hidden_and_what_reads_images_is_not():
    config = HybridConfig(8, 4, in_chans=4, embed_dim=8, depth=1, num_heads=2, backbone_width=4, backbone_depths=(1, 1))
    names = {p.name for p in hidden_matrices(build(config))}
    assert {name for name in names if not name.startswith("blocks.")} == {
        "patch_embed.backbone.layer1.0.conv1.weight", "patch_embed.backbone.layer1.0.conv2.weight",
        "patch_embed.backbone.layer2.0.conv1.weight", "patch_embed.backbone.layer2.0.conv2.weight",
        "patch_embed.backbone.layer2.0.downsample.0.weight", "patch_embed.proj.weight",
    }  # fmt: skip


# -- the optimizer ----------------------------------------------------------------------------------------------------


def test_the_first_step_of_every_hidden_matrix_is_an_orthogonal_one_of_its_own():
    model = small_model()
    before = model.state_dict()
    take_steps(model, optim.Muon(model, lr=0.1, weight_decay=0.0), 1)
    for name in HIDDEN:
        p = dict(model.named_parameters())[name]
        step = (before[name] - p.data) / 0.1
        assert p.parts == (3 if "qkv" in name else 1)
        for part, g in zip(np.split(step, p.parts), np.split(p.grad, p.parts)):
            stretch = max(1, part.shape[0] / part.shape[1]) ** 0.5
            # The first momentum is parallel to the gradient.
            np.testing.assert_allclose(part, stretch * orthogonalise(g), atol=1e-3)


def test_filters_are_orthogonalised_as_matrices_with_a_row_for_each():
    model = build(ResNetConfig(img_size=8, in_chans=1, width=4, depths=(1, 1), num_classes=3), dtype="float64")
    names = {name for name, parameter in model.named_parameters() if parameter in hidden_matrices(model)}
    assert names == {f"layer{i}.0.conv{j}.weight" for i in (1, 2) for j in (1, 2)} | {"layer2.0.downsample.0.weight"}
    before = {name: parameter.data.copy() for name, parameter in model.named_parameters()}
    take_steps(model, optim.Muon(model, lr=0.1, weight_decay=0), 1)
    for name, parameter in model.named_parameters():
        if name in names:
            step, rows = (before[name] - parameter.data) / 0.1, len(parameter.data)
            scale = max(1, rows / (parameter.data.size / rows)) ** 0.5
            expected = orthogonalise(parameter.grad.reshape(rows, -1))
            np.testing.assert_allclose(step.reshape(rows, -1), scale * expected, atol=1e-6)


@pytest.mark.parametrize("share", [1, 0.25])
def test_filters_follow_their_own_rate_in_proportion_to_the_schedule_and_matrices_do_not(share):
    config = HybridConfig(
        img_size=8, patch_size=4, in_chans=1, num_classes=3, embed_dim=8, depth=1, num_heads=2, backbone_width=4,
        backbone_depths=(1,),
    )  # fmt: skip

    def trained(lr, filter_lr=None):
        model = redrawn(build(config, dtype="float64"), 0)
        optimizer = optim.Muon(model, lr, filter_lr=filter_lr)
        optimizer.lr = share * lr
        take_steps(model, optimizer, 3)
        return {parameter.name: parameter.data for parameter in hidden_matrices(model)}

    small, large, both = trained(0.02), trained(0.1), trained(0.02, filter_lr=0.1)
    assert {x.ndim for x in both.values()} == {2, 4}
    for name, x in both.items():
        np.testing.assert_allclose(x, (large if x.ndim == 4 else small)[name], atol=1e-14)
        assert abs(small[name] - large[name]).max() > 1e-3


@pytest.mark.parametrize("lr", [0.02, 0.005])
def test_all_other_parameters_follow_adamw_at_its_own_rate_in_proportion_to_the_schedule(lr):
    model, other = small_model(), small_model()
    optimizer = optim.Muon(model, 0.02, weight_decay=0.1, adam_lr=0.004)
    adamw = optim.AdamW(other, 0.004 * lr / 0.02, (0.9, 0.95), weight_decay=0.1)
    optimizer.lr = lr
    for m, o in ((model, optimizer), (other, adamw)):
        take_steps(m, o, 5)
    same = []
    for (name, p), q in zip(model.named_parameters(), other.parameters()):
        if name in HIDDEN:
            assert np.abs(p.data - q.data).max() > 1e-3
        else:
            np.testing.assert_allclose(p.data, q.data, atol=1e-14, err_msg=name)
            same.append(name)
    assert {"patch_embed.proj.weight", "head.weight", "cls_token", "blocks.1.attn.qkv.bias"} <= set(same)


def test_weight_decay_is_decoupled_and_reaches_matrices_alone():
    model = small_model()
    before = model.state_dict()
    model.zero_grad()
    optim.Muon(model, lr=0.1, weight_decay=0.5, adam_lr=0.01).step()
    for name, p in model.named_parameters():
        factor = 1 if not p.decay else 0.95 if name in HIDDEN else 0.995
        np.testing.assert_allclose(p.data, factor * before[name], rtol=1e-15, err_msg=name)


@given(scale=st.floats(0, 10))
def test_lr_scale_multiplies_the_rate_of_one_matrix(scale):
    scaled, other, plain = small_model(), small_model(), small_model()
    scaled.blocks[1].mlp.fc1.weight.lr_scale = scale
    take_steps(scaled, optim.Muon(scaled, 0.02, weight_decay=0.1), 2)
    take_steps(other, optim.Muon(other, 0.02 * scale or 1e-300, weight_decay=0.1), 2)
    take_steps(plain, optim.Muon(plain, 0.02, weight_decay=0.1), 2)
    for name in HIDDEN:
        models = scaled, (other if name == "blocks.1.mlp.fc1.weight" else plain)
        got, expected = (dict(model.named_parameters())[name].data for model in models)
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-15)


def test_nesterov_looks_ahead():
    plain, ahead = small_model(), small_model()
    for model, nesterov in ((plain, False), (ahead, True)):
        take_steps(model, optim.Muon(model, nesterov=nesterov, adam_lr=0.0), 1)
    assert np.abs(plain.storage.data - ahead.storage.data).max() < 1e-6  # both along the only gradient so far
    for model, nesterov in ((plain, False), (ahead, True)):
        take_steps(model, optim.Muon(model, nesterov=nesterov, adam_lr=0.0), 2)
    assert np.abs(plain.storage.data - ahead.storage.data).max() > 1e-3


def test_frozen_matrices_cost_nothing():
    model = small_model()
    optimizer = optim.Muon(model)
    model.freeze("blocks.0.*")
    model.freeze("*.qkv.weight")
    names = [p.name for piece in optimizer.pieces() for p in piece]
    assert names == [name for name in HIDDEN if name.startswith("blocks.1") and "qkv" not in name]
    model.freeze()
    assert not list(optimizer.pieces())


@pytest.mark.parametrize("piece", [1, 200, 10**9])
def test_threads_and_the_size_of_the_pieces_change_nothing(piece, monkeypatch):
    model, other = small_model(), small_model()
    take_steps(model, optim.Muon(model), 3)
    monkeypatch.setattr(muon, "PIECE_ENTRIES", piece)
    with ThreadPoolExecutor(3) as pool:
        take_steps(other, optim.Muon(other, map_pieces=pool.map), 3)
    np.testing.assert_allclose(other.storage.data, model.storage.data, rtol=0, atol=1e-15)


@pytest.mark.parametrize(("options", "message"), [
    (dict(lr=0), "learning rate above 0.*got 0"),
    (dict(adam_lr=-1), "learning rate of AdamW of at least 0, got -1"),
    (dict(adam_lr=float("inf")), "learning rate of AdamW of at least 0, got inf"),
    (dict(momentum=1.0), r"momentum of at least 0 and below 1, got 1\.0"),
    (dict(betas=(0.9, 1.0)), "betas"),
])  # fmt: skip
def test_bad_arguments_are_refused_with_the_given_value(options, message):
    with pytest.raises(ValueError, match=message):
        optim.Muon(small_model(), **options)


def test_a_model_without_numbered_layers_is_advised_to_use_adamw():
    with pytest.raises(ValueError, match="matrices in numbered layers.*Linear has none, take AdamW"):
        optim.Muon(nn.Linear(3, 4).materialize())
