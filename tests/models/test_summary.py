import tracemalloc

import numpy as np
import pytest

from tinyvit import ViT, ViTConfig, create_model
from tinyvit.models import model_names
from tinyvit.models.summary import format_summary, summarize
from tinyvit.models.vit import POSITIONS


def kept_numbers(cache, inputs, parameters):
    """How many numbers the arrays of a cache hold, each piece of memory counted once, weights and inputs left out."""
    found = {}

    def walk(node):
        if isinstance(node, np.ndarray):
            while node.base is not None:
                node = node.base
            if not any(np.shares_memory(node, other) for other in (inputs, parameters)):
                found[id(node)] = node
        elif isinstance(node, tuple):
            for item in node:
                walk(item)

    walk(cache)
    return sum(array.size for array in found.values())


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("fields", [{}, dict(global_pool="avg", head_hidden=7), dict(activation="gelu_tanh")], ids=str)
def test_the_activations_of_a_summary_are_what_the_caches_really_hold(positions, fields):
    config = ViTConfig((8, 12), (4, 3), 2, 5, 24, 3, 2, positions=positions, **fields)
    model = ViT(config)
    x = np.random.default_rng(0).standard_normal((3, 2, 8, 12)).astype("float32")
    _, cache = model(x)
    rows = summarize(model, batch_size=3)
    # The tables of sines and cosines are the same for every call and belong to no layer.
    tables = [c for block in cache.blocks if block.attn.rope for pair in block.attn.rope for c in pair]
    constants = sum({id(table): table.size for table in tables}.values())
    assert sum(row.activations for row in rows) == kept_numbers(cache, x, model.storage.data.base) - constants


@pytest.mark.parametrize("name", model_names())
def test_a_summary_counts_every_parameter_once_and_allocates_none(name):
    tracemalloc.start()
    model = create_model(name, device="meta")
    rows = summarize(model)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(row.parameters for row in rows) == model.num_parameters()
    assert peak < 8e6


def test_b16_costs_17_6_billion_multiply_adds():
    rows = summarize(create_model("vit_base_patch16_224", device="meta"))
    assert sum(row.multiply_adds for row in rows) == 17_563_828_224


def test_shapes_in_a_summary_are_those_of_a_real_forward():
    class Shapes(dict):
        def value(self, path, y):
            self[path] = y.shape

    from tinyvit import Context

    model, shapes = ViT(ViTConfig(8, 4, 2, 5, 12, 2, 3)), Shapes()
    model(np.ones((3, 2, 8, 8), "float32"), Context(observer=shapes))
    modules = {path for path, _ in model.named_modules()}
    seen = [row for row in summarize(model, 3) if row.path in modules]
    assert len(seen) > 10
    for row in seen:
        assert row.shape == shapes[row.path], row


def test_multiply_adds_and_activations_grow_with_the_batch_but_parameters_do_not():
    model = create_model("vit_tiny_patch16_224", device="meta")
    for one, four in zip(summarize(model, 1), summarize(model, 4)):
        assert four.multiply_adds == 4 * one.multiply_adds and four.activations == 4 * one.activations
        assert four.parameters == one.parameters


def test_a_table_has_a_line_a_layer_and_the_totals():
    rows = summarize(create_model("vit_tiny_patch16_224", device="meta"))
    lines = format_summary(rows).splitlines()
    assert len(lines) == len(rows) + 4
    assert "5,717,416" in lines[-1]


def test_an_empty_batch_is_refused():
    with pytest.raises(ValueError, match="batch size of at least 1, got 0"):
        summarize(create_model("vit_tiny_patch16_224", device="meta"), 0)
