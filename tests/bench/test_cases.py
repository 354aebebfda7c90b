import json
from dataclasses import replace

import pytest

from tinyvit import ViT, ViTConfig
from tinyvit.bench.cases import CASES, AttentionCase, ConvCase, ModelCase, case_named, from_dict, to_dict
from tinyvit.models import create_model
from tinyvit.models.summary import summarize
from tinyvit.training import preset

CONFIG = ViTConfig(img_size=(8, 12), patch_size=(4, 3), in_chans=2, num_classes=5, embed_dim=24, depth=2, num_heads=3)


def multiply_adds_by_hand(config, batch):
    """Multiply-adds of a forward and of its patch projection, computed from the sizes."""
    rows, columns = config.grid
    N, D, hidden = rows * columns + 1, config.embed_dim, config.mlp_hidden
    p, q = config.patch_size if isinstance(config.patch_size, tuple) else 2 * (config.patch_size,)
    patches = rows * columns * config.in_chans * p * q * D
    block = N * D * 3 * D + 2 * N * N * D + N * D * D + 2 * N * D * hidden
    return batch * (patches + config.depth * block + D * config.num_classes), batch * patches


@pytest.mark.parametrize("batch", [1, 3])
def test_a_training_step_has_three_products_per_forward_product_but_no_gradient_of_the_images(batch):
    forward, patches = multiply_adds_by_hand(CONFIG, batch)
    assert ModelCase("a", "infer", batch, CONFIG).multiply_adds() == forward
    assert ModelCase("a", "train", batch, CONFIG).multiply_adds() == 3 * forward - patches


def test_the_first_row_takes_the_operations_that_are_known_for_it():
    assert 2 * CASES["vit"].multiply_adds() == pytest.approx(140e9, rel=0.01)


def test_attention_with_its_backward_takes_three_times_the_multiply_adds_of_its_forward():
    case = AttentionCase("a", batch_size=2, tokens=7, heads=3, head_dim=8)
    config = replace(CONFIG, embed_dim=24, depth=1)
    inside = summarize(ViT(config, device="meta"), 2)
    rows, columns = config.grid
    heads = next(row for row in inside if row.path.endswith("heads"))
    assert replace(case, tokens=rows * columns + 1).multiply_adds() == 3 * heads.multiply_adds


def test_a_convolution_and_its_two_gradients_take_a_multiply_add_for_each_weight_that_a_pixel_sees():
    case = ConvCase("a", batch_size=2, side=5, in_chans=4, out_chans=6, kernel_size=3, stride=2, groups=2)
    assert case.multiply_adds() == 3 * 2 * (3 * 3) * 6 * 2 * 3 * 3
    assert CASES["conv-64"].multiply_adds() == CASES["conv-512"].multiply_adds()


def test_the_cases_are_the_models_that_they_are_named_after():
    assert CASES["digits"].config == preset("digits").model
    assert CASES["digits"].batch_size == preset("digits").batch_size
    assert CASES["ti16"].config == create_model("vit_tiny_patch16_224", device="meta").config
    assert [CASES[f"attention-{n}"].tokens for n in (65, 197, 577, 1025)] == [65, 197, 577, 1025]
    assert CASES["vit"].tokens == 65 and CASES["patch8"].tokens == 17
    assert all(name == case.name for name, case in CASES.items())


@pytest.mark.parametrize("case", [*CASES.values(), ModelCase("a", "train", 3, CONFIG)], ids=lambda case: case.name)
def test_a_case_survives_being_sent_as_json(case):
    assert from_dict(json.loads(json.dumps(to_dict(case)))) == case


def test_only_a_training_step_with_dropout_depends_on_chance():
    assert [case.name for case in CASES.values() if case.draws] == ["digits"]
    assert not replace(CASES["digits"], kind="infer").draws


def test_another_batch_size_changes_nothing_else():
    assert case_named("vit", 7) == replace(CASES["vit"], batch_size=7)
    assert case_named("attention-65", 7) == replace(CASES["attention-65"], batch_size=7)
    assert "batch 7" in case_named("vit", 7).title


@pytest.mark.parametrize("name", ["vit", "attention-65", "conv-64"])
def test_an_empty_batch_is_refused(name):
    with pytest.raises(ValueError, match="batch-size must be at least 1, got 0"):
        case_named(name, 0)


@pytest.mark.parametrize(
    ("name", "message"),
    [("attention-66", "unknown case 'attention-66'; did you mean attention-65"), ("x", "expected some of vit, vit-9x")],
)
def test_an_unknown_case_is_refused_with_the_known_ones(name, message):
    with pytest.raises(ValueError, match=message):
        case_named(name)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_largest_products_of_a_step_are_those_of_the_mlp_on_one_threads_share(threads):
    case = ModelCase("a", "train", 6, CONFIG)
    rows = 6 * case.tokens // threads
    assert case.products(threads) == [(rows, 24, 48), (rows, 48, 24), (24, rows, 48)]
