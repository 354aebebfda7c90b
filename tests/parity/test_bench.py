"""The benchmark's PyTorch model and step against ours: they must compute the same numbers."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_bench import ATTENTION, CONFIG, CONV, INFER, TRAIN, small_run
from strategies import seeds
from torch_autograd import assert_all_close, normal
from torch_vit import gradients_by_autograd, gradients_by_hand, redrawn_vit

from tinyvit.bench import steps, torch_steps
from tinyvit.bench.torch_steps import twin
from tinyvit.models.hybrid import HybridConfig
from tinyvit.models.resnet import ResNetConfig

pytestmark = pytest.mark.parity

SHAPES = {
    "small": CONFIG,
    "deep": replace(CONFIG, img_size=(12, 8), depth=3, embed_dim=24, num_heads=3, in_chans=3),
    "mean": replace(CONFIG, global_pool="avg", mlp_ratio=1.5, qkv_bias=False, norm_eps=1e-3),
}
STEPS = SHAPES | {
    "fixed positions": replace(CONFIG, positions="sincos_2d"),
    "resnet": ResNetConfig(img_size=8, in_chans=1, num_classes=3, width=64, depths=(1, 2)),
    "hybrid": HybridConfig(img_size=8, patch_size=2, in_chans=1, num_classes=3, embed_dim=8, depth=1, num_heads=2,
                           positions="sincos_2d", global_pool="avg", backbone_depths=(1, 1), backbone_width=64),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
@given(samples=st.integers(1, 4), seed=seeds())
@settings(max_examples=10)
def test_logits_and_every_gradient_are_ours(name, samples, seed):
    model = redrawn_vit(SHAPES[name], seed)
    images, dlogits = normal(seed, (samples, *model.embed.image_shape), (samples, model.config.num_classes))
    expected = gradients_by_autograd(twin(model), images, dlogits)
    assert_all_close(gradients_by_hand(model, images, dlogits), expected)


@pytest.mark.parametrize("layout", ["torch", "channels_last"])
@pytest.mark.parametrize("name", STEPS)
def test_a_training_goes_the_same_way_step_by_step(name, layout):
    case = replace(TRAIN, shape=STEPS[name], batch_size=5)
    ours = steps.prepare(case, "float64", 1)
    theirs = torch_steps.prepare(case, "float64", 1, layout)
    losses = [(float(ours()), float(theirs())) for _ in range(6)]
    np.testing.assert_allclose(*np.transpose(losses), rtol=1e-9)
    assert len({loss for loss, _ in losses}) == 6


BIASED = replace(ATTENTION, shape=ATTENTION.shape._replace(bias=True))


@pytest.mark.parametrize("case", [INFER, ATTENTION, BIASED, CONV], ids=["infer", "attention", "bias", "conv"])
def test_inference_attention_and_convolution_give_the_same_number(case):
    ours, theirs = (float(module.prepare(case, "float64", 1)()) for module in (steps, torch_steps))
    assert ours == pytest.approx(theirs, rel=1e-12)


def test_the_step_that_a_gpu_is_compared_with_goes_the_same_way():
    ours, theirs = steps.prepare(TRAIN, "float32", 1), torch_steps.training_step(TRAIN, "float32")
    np.testing.assert_allclose([ours() for _ in range(4)], [theirs().item() for _ in range(4)], rtol=1e-5)


@pytest.mark.parametrize("field", ["drop_rate", "attn_drop_rate", "drop_path_rate"])
def test_dropout_and_stochastic_depth_are_active_in_training_only(field):
    model = twin(redrawn_vit(replace(CONFIG, depth=2, **{field: 0.5})))
    torch.manual_seed(0)
    images = torch.randn(64, 1, 8, 8, dtype=torch.float64)
    assert not torch.equal(model.train()(images), model(images))
    assert torch.equal(model.eval()(images), model(images))


@pytest.mark.parametrize("case", [TRAIN, INFER, ATTENTION], ids=lambda case: case.kind)
def test_a_run_with_torch_has_ratios_and_no_disagreement(case):
    (result,) = small_run((case,))
    ours, theirs = result["results"]
    assert ours["ratios"].keys() == {"torch"} and ours["ratios"]["torch"] > 0
    assert (ours["problem"], theirs["problem"], result["disagreement"]) == (None, None, None)
    assert result["floor"]["operations_per_second"] > 0 and not result["floor"]["problems"]


def test_a_convolution_is_timed_in_both_memory_formats_of_torch():
    (result,) = small_run((CONV,))
    assert [row["name"] for row in result["results"]] == ["numpy", "torch", "channels_last"]
    assert not any(row["problem"] for row in result["results"]) and result["disagreement"] is None
