from dataclasses import replace

import pytest

from tinyvit import ViT, ViTConfig
from tinyvit.bench.cases import CASES, Case, Filters, Heads
from tinyvit.models import create_model
from tinyvit.models.summary import summarize
from tinyvit.training import preset

CONFIG = ViTConfig(img_size=(8, 12), patch_size=(4, 3), in_chans=2, num_classes=5, embed_dim=24, depth=2, num_heads=3)


def multiply_adds_by_hand(config, batch):
    """Multiply-adds of a forward and of its patch projection, computed from the sizes."""
    (rows, columns), (p, q) = config.grid, config.patch_size
    N, D, hidden = rows * columns + 1, config.embed_dim, config.mlp_hidden
    patches = rows * columns * config.in_chans * p * q * D
    block = N * D * 3 * D + 2 * N * N * D + N * D * D + 2 * N * D * hidden
    return batch * (patches + config.depth * block + D * config.num_classes), batch * patches


@pytest.mark.parametrize("batch", [1, 3])
def test_a_training_step_has_three_products_per_forward_product_but_no_gradient_of_the_images(batch):
    forward, patches = multiply_adds_by_hand(CONFIG, batch)
    assert Case("a", "infer", batch, CONFIG).multiply_adds() == forward
    assert Case("a", "train", batch, CONFIG).multiply_adds() == 3 * forward - patches
    assert 2 * CASES["vit"].multiply_adds() == pytest.approx(140e9, rel=0.01)


def test_attention_with_its_backward_takes_three_times_the_multiply_adds_of_its_forward():
    inside = summarize(ViT(replace(CONFIG, depth=1), device="meta"), 2)
    (rows, columns), heads = CONFIG.grid, next(row for row in inside if row.path.endswith("heads"))
    case = Case("a", "attention", 2, Heads(rows * columns + 1, heads=3, head_dim=8))
    assert case.multiply_adds() == 3 * heads.multiply_adds


def test_a_convolution_and_its_two_gradients_take_a_multiply_add_for_each_weight_that_a_pixel_sees():
    case = Case("a", "conv", 2, Filters(side=5, channels=4, filters=6, kernel_size=3, stride=2, groups=2))
    assert case.multiply_adds() == 3 * 2 * (3 * 3) * 6 * 2 * 3 * 3
    assert CASES["conv-64"].multiply_adds() == CASES["conv-512"].multiply_adds()


def test_the_cases_are_the_models_that_they_are_named_after():
    assert CASES["digits"].shape == preset("digits").model
    assert CASES["digits"].batch_size == preset("digits").batch_size
    assert CASES["ti16"].shape == create_model("vit_tiny_patch16_224", device="meta").config
    assert [CASES[f"attention-{n}"].shape.tokens for n in (65, 197, 577, 1025)] == [65, 197, 577, 1025]


def test_only_a_training_step_with_dropout_depends_on_chance():
    assert not any(case.is_random for case in CASES.values())
    dropping = replace(CASES["digits"], shape=replace(CASES["digits"].shape, drop_rate=0.1))
    assert dropping.is_random and not replace(dropping, kind="infer").is_random
