"""A model on the device has the gradients that it has on the CPU."""

from dataclasses import replace

import numpy as np
import pytest
from strategies import redrawn

from tinyvit import Context, Key, ViTConfig, create_model
from tinyvit import functional as F
from tinyvit.backend import to_device, to_numpy
from tinyvit.models import BiTConfig, CoAtNetConfig, DeiTConfig, Dinov2Config, HybridConfig, SwinConfig, build
from tinyvit.optim import SGD
from tinyvit.training import train_step

CONFIG = ViTConfig(img_size=8, patch_size=4, num_classes=3, embed_dim=24, depth=2, num_heads=3, drop_path_rate=0.5)
SWIN = SwinConfig(
    img_size=8, num_classes=3, embed_dim=24, depths=(2, 1), num_heads=(3, 6), window_size=2, mlp_ratio=2.0,
    drop_path_rate=0.5,
)  # fmt: skip
COATNET = CoAtNetConfig(
    img_size=8, num_classes=3, stem_width=8, stem_stride=1, stages="CT", depths=(1, 2), widths=(8, 16), strides=(2, 2),
    head_dim=8, expansion=2.0, drop_path_rate=0.5,
)  # fmt: skip
IMAGES = np.random.default_rng(0).normal(size=(6, 3, 8, 8)).astype("float32")
LABELS = np.arange(6) % 3
SMALL = dict(img_size=8, num_classes=3)
VIT = SMALL | dict(embed_dim=24, depth=1, num_heads=3, patch_size=4)
OTHERS = {
    "rope": replace(CONFIG, positions="rope", head_hidden=5, global_pool="avg"), "deit": DeiTConfig(**VIT),
    "dinov2": Dinov2Config(**VIT, swiglu=True), "hybrid": HybridConfig(**VIT, backbone_width=4),
    "qwen_vision": create_model("qwen2_5_vl_vision_small", img_size=8, num_classes=3, device="meta").config,
    "bit": BiTConfig(**SMALL, depths=(1, 1), width=4, num_groups=2),
}
CTX = Context(training=True, key=Key(1, 0))


def gradients_of_a_step(device, config=CONFIG, precision=None, frozen=None, ctx=CTX, **options):
    model = redrawn(build(config, device=device, precision=precision))
    if frozen:
        model.freeze(frozen)
    images, labels = to_device(IMAGES, device), to_device(LABELS, device)
    train_step(model, SGD(model, lr=0.1), images, labels, ctx, **options)
    return {name: to_numpy(p.grad).copy() for name, p in model.named_parameters()}


def assert_close(got, wanted, bound):
    for name, want in wanted.items():
        assert abs(got[name] - want).max() <= bound * max(1e-2, abs(want).max()), name


STEPS = {
    "plain": {}, "accumulated": {"accumulate": 2}, "frozen": {"frozen": "blocks.1.*"}, "no bias": {"frozen": "*.bias"},
    "dropout": {"config": replace(CONFIG, drop_rate=0.2)},
    "gelu_tanh": {"config": replace(CONFIG, activation="gelu_tanh", qkv_bias=False)},
    "swin": {"config": SWIN}, "swin, no bias": {"config": SWIN, "frozen": "*.bias"}, "coatnet": {"config": COATNET},
    **{name: {"config": config} for name, config in OTHERS.items()},
}  # fmt: skip


@pytest.mark.parametrize("options", STEPS.values(), ids=STEPS)
def test_a_step_has_the_gradients_that_it_has_on_the_cpu(cupy, options):
    assert_close(gradients_of_a_step("cuda", **options), gradients_of_a_step("cpu", **options), 1e-4)


def bits_of_encoder(model, ctx):
    """The output, the gradient of the input and those of all parameters, as numbers."""
    x, dy = np.random.default_rng(0).normal(size=(2, 4, 5, 24)).astype("float32")
    x, dy = (F.cast(to_device(array, "cuda"), model.storage.compute_dtype) for array in (x, dy))
    model.zero_grad()
    y, cache = model.encode(x, ctx)
    dx = model.encode.backward(dy, cache)
    return [to_numpy(array).astype("float32") for array in (y, dx, model.storage.gradients())]


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("config", [CONFIG, replace(CONFIG, drop_rate=0.2), replace(CONFIG, positions="rope")],
                         ids=["drop path", "dropout", "rope"])  # fmt: skip
def test_recomputed_blocks_have_the_bits_of_kept_ones(cupy, config, precision):
    model = redrawn(build(config, device="cuda", precision=precision))
    for got, want in zip(*(bits_of_encoder(model, replace(CTX, recompute=again)) for again in (True, False))):
        np.testing.assert_array_equal(got, want)
