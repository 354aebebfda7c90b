"""Operations and heads of dense prediction against PyTorch's autograd, in float64."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import SIZES, redrawn, seeds
from torch.nn import functional as T
from torch_autograd import assert_same_as_torch, normal
from torch_vit import TorchBlock

from tinyvit import functional as F
from tinyvit.models import SegmenterConfig, ViTConfig, build

pytestmark = pytest.mark.parity

MAPS = st.tuples(SIZES, SIZES, SIZES, SIZES)


@given(shape=MAPS, filters=SIZES, kernel=st.tuples(SIZES, SIZES), biased=st.booleans(), seed=seeds())
def test_conv_transpose2d_is_that_of_torch(shape, filters, kernel, biased, seed):
    arrays = normal(seed, shape, (shape[1], filters, *kernel), (filters,))[: 2 + biased]
    assert_same_as_torch(F.conv_transpose2d, lambda *a: T.conv_transpose2d(*a, stride=kernel), *arrays, stride=kernel)


@given(shape=MAPS, size=st.tuples(st.integers(1, 9), st.integers(1, 9)), seed=seeds())
def test_resize_bilinear_is_interpolate_without_aligned_corners(shape, size, seed):
    resized = {"size": size, "mode": "bilinear", "align_corners": False}
    assert_same_as_torch(F.resize_bilinear, lambda x: T.interpolate(x, **resized), normal(seed, shape), size=size)


@given(shape=MAPS, ignored=st.sampled_from([0, 0.5]), seed=seeds())
def test_pixel_cross_entropy_is_that_of_torch(shape, ignored, seed):
    (B, K, H, W), generator = shape, np.random.default_rng(seed)
    labels = np.where(generator.random((B, H, W)) < ignored, 255, generator.integers(0, K, (B, H, W)))
    labels[0, 0, 0] = 0  # of no pixel at all PyTorch's mean is NaN
    assert_same_as_torch(
        F.pixel_cross_entropy, lambda x: T.cross_entropy(x, torch.tensor(labels), ignore_index=255),
        normal(seed, shape, scale=3.0), labels=labels,
    )  # fmt: skip


@given(shape=MAPS, seed=seeds())
def test_dot_products_are_batched_products_of_torch(shape, seed):
    B, N, K, D = shape
    assert_same_as_torch(F.dot_products, lambda q, k: torch.bmm(q, k.mT), *normal(seed, (B, N, D), (B, K, D)))


# -- heads, on maps of a backbone -------------------------------------------------------------------------------------


def linear_head(maps, w, stride):
    x = torch.einsum("bchw,kc->bkhw", maps, w["head.weight"]) + w["head.bias"][:, None, None]
    return interpolated(x, [side * stride for side in maps.shape[2:]])


def pixel_head(maps, w, stride):
    weight = w["head.weight"]                                                  # (D, K, P, P)
    x = torch.einsum("bchw,ckpq->bkhpwq", maps, weight).flatten(4, 5).flatten(2, 3)
    return x + w["head.bias"][:, None, None]


def mask_transformer(maps, w, stride):
    B, _, rows, columns = maps.shape
    x = T.linear(maps.flatten(2).mT, w["proj_dec.weight"], w["proj_dec.bias"])
    N, d = x.shape[1:]
    x = torch.cat([x, w["cls_emb"].expand(B, -1, -1)], 1)

    def norm(x, name):
        return T.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"], 1e-5)

    block = TorchBlock(ViTConfig(embed_dim=d, num_heads=2, mlp_ratio=4.0, norm_eps=1e-5))
    for i in range(2):
        x = torch.func.functional_call(block, {name: w[f"blocks.{i}.{name}"] for name in block.state_dict()}, x)
    x = norm(x, "decoder_norm")
    patches, classes = x[:, :N] @ w["proj_patch.weight"].T, x[:, N:] @ w["proj_classes.weight"].T
    masks = T.normalize(patches, dim=-1) @ T.normalize(classes, dim=-1).mT
    masks = norm(masks, "mask_norm").mT.reshape(B, -1, rows, columns)
    return interpolated(masks, (rows * stride, columns * stride))


def pyramid(maps, w, stride):
    def norm(x, name):
        return T.layer_norm(x.movedim(1, -1), x.shape[1:2], w[f"{name}.weight"], w[f"{name}.bias"], 1e-6).movedim(-1, 1)

    def double(x, name):
        return T.conv_transpose2d(x, w[f"{name}.weight"], w[f"{name}.bias"], 2)

    def end(x, name, first):
        x = norm(T.conv2d(x, w[f"{name}.{first}.weight"]), f"{name}.{first + 1}")
        return norm(T.conv2d(x, w[f"{name}.{first + 2}.weight"], padding=1), f"{name}.{first + 3}")

    four = double(T.gelu(norm(double(maps, "simfp_2.0"), "simfp_2.1")), "simfp_2.3")
    levels = [end(four, "simfp_2", 4), end(double(maps, "simfp_3.0"), "simfp_3", 1), end(maps, "simfp_4", 0),
              end(T.max_pool2d(maps, 2), "simfp_5", 1)]  # fmt: skip
    x = T.gelu(sum(interpolated(x, levels[0].shape[2:]) for x in levels))
    x = torch.einsum("bchw,kc->bkhw", x, w["head.weight"]) + w["head.bias"][:, None, None]
    return interpolated(x, [side * stride for side in maps.shape[2:]])


def interpolated(x, size):
    return T.interpolate(x, size=tuple(size), mode="bilinear", align_corners=False)


HEADS = {"linear": linear_head, "pixel": pixel_head, "mask": mask_transformer, "pyramid": pyramid}


@pytest.mark.parametrize("stride", [2, 4, 8])
@pytest.mark.parametrize("kind", HEADS)
def test_each_head_is_what_its_paper_says(kind, stride):
    size = 3 * stride, 5 * stride
    backbone = {"patch_size": stride, "embed_dim": 8, "depth": 1, "num_heads": 2, "img_size": size}
    config = SegmenterConfig("vit", backbone, num_classes=3, head=kind, decoder_dim=6, decoder_heads=2)
    head = redrawn(build(config, dtype="float64"), std=0.5).head
    names = [parameter.name.removeprefix("head.") for parameter in head.parameters()]
    assert set(names) == {name.removeprefix("head.") for name in build(config).state_dict() if name.startswith("head.")}

    def by_hand(maps, *values):
        for parameter, value in zip(head.parameters(), values):
            parameter.data = value
        return head(maps)

    def backward(dlogits, cache):
        head.zero_grad()
        return head.backward(dlogits, cache), *(parameter.grad for parameter in head.parameters())

    def by_torch(maps, *values):
        return HEADS[kind](maps, dict(zip(names, values)), stride)

    values = [parameter.data.copy() for parameter in head.parameters()]
    assert_same_as_torch(by_hand, by_torch, normal(1, (2, 8, 3, 5)), *values, backward=backward)
