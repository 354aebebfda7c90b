"""Models that change after their optimizer was made: refused, or brought together by `to()` and `rebind()`."""

import copy

import numpy as np
import pytest
from strategies import redrawn

from tinyvit import ViT, ViTConfig, nn, optim
from tinyvit.training import train_step


def other_head(model):
    model.head = nn.Linear(8, 3)
    model.head.materialize(dtype="float64")


def another_block(model):
    model.blocks.append(copy.deepcopy(model.blocks[0]))


def anothers_embedding(model):
    model.embed = small_vit(seed=1).embed


CHANGES = {
    "cls_token and head.weight": other_head,
    "cls_token and blocks.2.norm1.weight": another_block,
    "cls_token and blocks.0.norm1.weight": anothers_embedding,
}


def small_vit(seed=0):
    return redrawn(ViT(ViTConfig(4, 2, 1, 3, 8, 2, 2), dtype="float64"), seed)


def one_step(model, optimizer):
    images = np.random.default_rng(0).standard_normal((4, 1, 4, 4))
    return train_step(model, optimizer, images, np.array([0, 1, 2, 0]))


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("make", [optim.AdamW, optim.Muon, optim.EMA])
def test_a_part_outside_the_models_storage_is_refused_by_optimizers_and_averages(name, make):
    model = small_vit()
    before = make(model)
    CHANGES[name](model)
    message = f"{name} lie in different storages.*call to\\(\\) on the model"
    for attempt in (lambda: make(model), before.update if make is optim.EMA else before.step):
        with pytest.raises(ValueError, match=message):
            attempt()
    with pytest.raises(ValueError, match=message):
        before.rebind()


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("rebound", [False, True])
def test_after_to_every_parameter_of_a_changed_model_is_trained(name, rebound):
    model = small_vit()
    optimizer = optim.AdamW(model, 0.1)
    CHANGES[name](model)
    images = np.ones((1, 1, 4, 4))
    output, _ = model(images)
    model.to()
    np.testing.assert_array_equal(model(images)[0], output)
    if rebound:
        with pytest.raises(ValueError, match=r"call rebind\(\) on its "):
            one_step(model, optimizer)
        optimizer.rebind()
    else:
        optimizer = optim.AdamW(model, 0.1)
    before = model.state_dict()
    one_step(model, optimizer)
    assert all((array != before[name]).any() for name, array in model.state_dict().items())
    assert [path for path, _ in model.named_modules()] == [module.path for _, module in model.named_modules()]


def test_a_rebound_optimizer_keeps_the_state_of_old_parameters_and_starts_new_ones_at_zero():
    model = small_vit()
    optimizer, average = optim.Adam(model, 0.1), optim.EMA(model, 0.5)
    one_step(model, optimizer)
    m = {name: parameter.view(optimizer.state[0]).copy() for name, parameter in model.named_parameters()}
    e = {name: parameter.view(average.average).copy() for name, parameter in model.named_parameters()}
    other_head(model)
    model.to()
    optimizer.rebind(), average.rebind()
    for name, parameter in model.named_parameters():
        known = not name.startswith("head.")
        np.testing.assert_array_equal(parameter.view(optimizer.state[0]), m[name] if known else 0, err_msg=name)
        expected = e[name] if known else parameter.data
        np.testing.assert_array_equal(parameter.view(average.average), expected, err_msg=name)


def test_the_parameters_in_the_place_of_the_model_are_refused_by_a_line():
    with pytest.raises(TypeError, match=r"expected a model, as in AdamW\(model, lr=1e-3\), got generator"):
        optim.AdamW(small_vit().parameters())
